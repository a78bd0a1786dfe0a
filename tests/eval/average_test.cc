#include "tidemark/average.h"
