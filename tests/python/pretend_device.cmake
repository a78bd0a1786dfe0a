# For device*_test.py: the pretend accelerator of the C++ tests, as a library that PyTorch loads.
include_guard(GLOBAL)
include(${PROJECT_SOURCE_DIR}/snapshot/torch/find_torch.cmake)
if(TIDEMARK_LIBTORCH_PROBLEM)
  message(FATAL_ERROR "${TIDEMARK_LIBTORCH_PROBLEM}")
endif()
add_library(pretend_device MODULE EXCLUDE_FROM_ALL
  ${PROJECT_SOURCE_DIR}/tests/snapshot/pretend_accelerator.cc ${CMAKE_CURRENT_LIST_DIR}/pretend_device.cc)
target_link_libraries(pretend_device PRIVATE tidemark_build tidemark::libtorch absl::synchronization)
