# The LibTorch edge: the only sources of the library that include LibTorch.
include(${CMAKE_CURRENT_LIST_DIR}/torch/find_torch.cmake)
if(TIDEMARK_LIBTORCH_PROBLEM)
  message(FATAL_ERROR "${TIDEMARK_LIBTORCH_PROBLEM} To build without LibTorch configure with -DTIDEMARK_TORCH=OFF.")
endif()
set(TIDEMARK_LIBTORCH_VERSION "${TIDEMARK_LIBTORCH_VERSION}" PARENT_SCOPE)  # for the installed package

tidemark_library(tidemark_torch
  torch/torch_archive.cc
  torch/torch_boxes.cc
  torch/torch_catalog.cc
  torch/torch_copy.cc
  torch/torch_device_image.cc
  torch/torch_dtypes.cc
  torch/torch_errors.cc
  torch/torch_file.cc
  torch/torch_load.cc
  torch/torch_name_trace.cc
  torch/torch_optimizer_fields.cc
  torch/torch_optimizer_restore.cc
  torch/torch_optimizer_source.cc
  torch/torch_ranks.cc
  torch/torch_scheduler_source.cc
  torch/torch_sources.cc
  torch/torch_state.cc)
set_target_properties(tidemark_torch PROPERTIES EXPORT_NAME torch)
if(TIDEMARK_TORCH_UNITY)
  set_target_properties(tidemark_torch PROPERTIES UNITY_BUILD ON)
endif()
add_library(tidemark::torch ALIAS tidemark_torch)
target_link_libraries(tidemark_torch
  PUBLIC tidemark tidemark::libtorch
  PRIVATE tidemark_exchange tidemark_shard absl::flat_hash_map absl::flat_hash_set fmt::fmt)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/torch/find_torch.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tidemark)
