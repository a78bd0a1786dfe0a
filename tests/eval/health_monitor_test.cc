#include "tidemark/health_monitor.h"
