# The LibTorch edge: the only sources of the library that include LibTorch.
include(${CMAKE_CURRENT_LIST_DIR}/find_torch.cmake)
if(TIDEMARK_LIBTORCH_PROBLEM)
  message(FATAL_ERROR "${TIDEMARK_LIBTORCH_PROBLEM} To build without LibTorch configure with -DTIDEMARK_TORCH=OFF.")
endif()
set(TIDEMARK_LIBTORCH_VERSION "${TIDEMARK_LIBTORCH_VERSION}" PARENT_SCOPE)  # for the installed package

tidemark_library(tidemark_torch
  torch_archive.cc
  torch_catalog.cc
  torch_copy.cc
  torch_device_image.cc
  torch_dtypes.cc
  torch_errors.cc
  torch_file.cc
  torch_load.cc
  torch_name_trace.cc
  torch_optimizer_fields.cc
  torch_optimizer_source.cc
  torch_pickle.cc
  torch_scheduler_source.cc
  torch_sources.cc
  torch_state.cc)
set_target_properties(tidemark_torch PROPERTIES EXPORT_NAME torch)
add_library(tidemark::torch ALIAS tidemark_torch)
target_link_libraries(tidemark_torch
  PUBLIC tidemark tidemark::libtorch
  PRIVATE tidemark_shard absl::flat_hash_map absl::flat_hash_set fmt::fmt)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/find_torch.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark)
