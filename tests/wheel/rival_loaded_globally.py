"""Importing this loads the library RIVAL so that all of the process sees its functions, and makes sure that it does."""

import ctypes
import os

ctypes.CDLL(os.environ["RIVAL"], mode=ctypes.RTLD_GLOBAL)
getattr(ctypes.CDLL(None), os.environ["RIVAL_SYMBOL"])  # AttributeError: a library loaded from here on would not see it
