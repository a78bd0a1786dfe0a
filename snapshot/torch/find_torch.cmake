# Finds LibTorch and makes the imported target tidemark::libtorch. Used by this build and by the installed package.
#
# Looks where Torch_DIR points, then in CMAKE_PREFIX_PATH, the variable and then the environment's, then in the system. LibTorch's own package configuration is
# not used: the one of a CUDA build stops without a CUDA toolkit, and the one of Debian wants every library that
# LibTorch was built with. Headers and libraries are all that is needed.
#
# Torch_DIR may be .../site-packages/torch/share/cmake/Torch of a Python wheel; CMAKE_PREFIX_PATH may be
# .../site-packages/torch, or what torch.utils.cmake_prefix_path prints.
#
# Sets TIDEMARK_LIBTORCH_VERSION ("2.15.0"); or, and then there is no target, TIDEMARK_LIBTORCH_PROBLEM to why not.

unset(TIDEMARK_LIBTORCH_PROBLEM)

string(REPLACE ":" ";" _tidemark_torch_prefixes "$ENV{CMAKE_PREFIX_PATH}")
list(PREPEND _tidemark_torch_prefixes ${CMAKE_PREFIX_PATH})

# What was found for another place must not be kept.
if(NOT "${Torch_DIR}|${_tidemark_torch_prefixes}" STREQUAL "${TIDEMARK_LIBTORCH_SOUGHT}")
  foreach(_name LIBTORCH_INCLUDE_DIR LIBTORCH_CPU LIBC10 LIBTORCH_CUDA LIBC10_CUDA)
    unset(TIDEMARK_${_name} CACHE)
  endforeach()
  set(TIDEMARK_LIBTORCH_SOUGHT "${Torch_DIR}|${_tidemark_torch_prefixes}" CACHE INTERNAL "")
endif()

set(_tidemark_torch_roots "")
if(Torch_DIR)
  # PREFIX/share/cmake/Torch, or PREFIX/lib/MULTIARCH/cmake/Torch.
  foreach(_up "../../.." "../../../..")
    get_filename_component(_root "${Torch_DIR}/${_up}" ABSOLUTE)
    list(APPEND _tidemark_torch_roots "${_root}")
  endforeach()
else()
  foreach(_prefix IN LISTS _tidemark_torch_prefixes)
    get_filename_component(_root "${_prefix}/../.." ABSOLUTE)
    list(APPEND _tidemark_torch_roots "${_prefix}" "${_root}")
  endforeach()
endif()

# A LibTorch that was named must not silently be another one, hence NO_DEFAULT_PATH with Torch_DIR.
set(_tidemark_torch_only "")
if(Torch_DIR)
  set(_tidemark_torch_only NO_DEFAULT_PATH)
endif()
find_path(TIDEMARK_LIBTORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h HINTS ${_tidemark_torch_roots}
  PATH_SUFFIXES include ${_tidemark_torch_only})
if(NOT TIDEMARK_LIBTORCH_INCLUDE_DIR)
  string(CONCAT TIDEMARK_LIBTORCH_PROBLEM "LibTorch was not found (Torch_DIR='${Torch_DIR}'). Install libtorch-dev, or "
    "name a LibTorch with Torch_DIR or CMAKE_PREFIX_PATH.")
  return()
endif()
# The libraries that belong to these headers, and no others.
get_filename_component(_tidemark_torch_prefix "${TIDEMARK_LIBTORCH_INCLUDE_DIR}" DIRECTORY)
foreach(_name torch_cpu c10 torch_cuda c10_cuda)
  string(TOUPPER ${_name} _upper)
  find_library(TIDEMARK_LIB${_upper} ${_name} HINTS ${_tidemark_torch_prefix} NO_DEFAULT_PATH
    PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE})
endforeach()
if(NOT TIDEMARK_LIBTORCH_CPU OR NOT TIDEMARK_LIBC10)
  string(CONCAT TIDEMARK_LIBTORCH_PROBLEM "LibTorch's headers are in ${TIDEMARK_LIBTORCH_INCLUDE_DIR}, but libtorch_cpu "
    "and libc10 are not in the lib folder beside them.")
  return()
endif()

foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS "${TIDEMARK_LIBTORCH_INCLUDE_DIR}/${_header}")
    file(STRINGS "${TIDEMARK_LIBTORCH_INCLUDE_DIR}/${_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    break()
  endif()
endforeach()
string(REGEX REPLACE "[^;]*TORCH_VERSION_[A-Z]+ +([0-9]+)" "\\1" TIDEMARK_LIBTORCH_VERSION "${_lines}")
string(REPLACE ";" "." TIDEMARK_LIBTORCH_VERSION "${TIDEMARK_LIBTORCH_VERSION}")

# std::string and std::list crossing into LibTorch must be the same types on both sides, and Abseil's are too: an old
# one cannot be mixed in, whatever is defined here.
file(STRINGS "${TIDEMARK_LIBC10}" _tidemark_torch_cxx11 REGEX "__cxx11" LIMIT_COUNT 1)
if(NOT _tidemark_torch_cxx11)
  string(CONCAT TIDEMARK_LIBTORCH_PROBLEM "${TIDEMARK_LIBC10} was built with _GLIBCXX_USE_CXX11_ABI=0 (Python wheels of "
    "torch before 2.6 are). Tidemark's other dependencies are not. Take a newer LibTorch or one built with the C++11 ABI.")
  return()
endif()

# The CUDA half registers its kernels when it is loaded; nothing refers to it by name, so the linker must be told to
# keep it. A wheel without its CUDA packages has the file but could not load it: then only the CPU half is linked.
set(_tidemark_torch_cuda "")
if(TIDEMARK_LIBTORCH_CUDA AND TIDEMARK_LIBC10_CUDA)
  execute_process(COMMAND ldd "${TIDEMARK_LIBTORCH_CUDA}" OUTPUT_VARIABLE _ldd ERROR_QUIET)
  string(REGEX MATCHALL "[^ \t\n]+ => not found" _missing "${_ldd}")
  if(_ldd AND NOT _missing)
    set(_tidemark_torch_cuda "-Wl,--no-as-needed" "${TIDEMARK_LIBTORCH_CUDA}" "${TIDEMARK_LIBC10_CUDA}"
      "-Wl,--as-needed")
  else()
    list(REMOVE_DUPLICATES _missing)
    string(REPLACE " => not found" "" _missing "${_missing}")
    list(JOIN _missing ", " _missing)
    message(STATUS "LibTorch: linking its CPU half only; libtorch_cuda lacks ${_missing}")
  endif()
endif()

# A wheel carries the headers of its own fmt among LibTorch's, which come before the system's, but no library to them.
set(_tidemark_torch_definitions "_GLIBCXX_USE_CXX11_ABI=1")
if(EXISTS "${TIDEMARK_LIBTORCH_INCLUDE_DIR}/fmt/format.h" AND
   NOT TIDEMARK_LIBTORCH_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
  list(APPEND _tidemark_torch_definitions FMT_HEADER_ONLY=1)
endif()

if(NOT TARGET tidemark::libtorch)
  # Linking by full path gives whoever links it an rpath to the folder in the build tree.
  add_library(tidemark::libtorch INTERFACE IMPORTED)
  set_target_properties(tidemark::libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
    "${TIDEMARK_LIBTORCH_INCLUDE_DIR};${TIDEMARK_LIBTORCH_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "${_tidemark_torch_definitions}"
    INTERFACE_LINK_LIBRARIES "${_tidemark_torch_cuda};${TIDEMARK_LIBTORCH_CPU};${TIDEMARK_LIBC10}")
  message(STATUS "LibTorch ${TIDEMARK_LIBTORCH_VERSION}: ${TIDEMARK_LIBTORCH_CPU}")
endif()
