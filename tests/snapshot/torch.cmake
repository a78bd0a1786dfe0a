# Tests of the LibTorch edge, labelled `torch`. They share one precompiled header, since LibTorch's own compile for many
# seconds; it belongs to an executable, because libraries are compiled with other flags.
add_library(torch_test_support STATIC torch/torch_checkpoint.cc)
target_link_libraries(torch_test_support PUBLIC tidemark_build tidemark_torch fmt::fmt GTest::gmock GTest::gtest_main)

# Everything that the tests labelled `torch` run: what tests/torch2.sh builds.
add_custom_target(torch_tests)

# One process for all tests of a program: loading LibTorch takes longer than running them.
function(tidemark_torch_tests name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE torch_test_support)
  if(TARGET snapshot_torch_tests AND NOT name STREQUAL snapshot_torch_tests)
    target_precompile_headers(${name} REUSE_FROM snapshot_torch_tests)
  else()
    target_precompile_headers(${name} PRIVATE torch/torch_test_headers.h)
  endif()
  add_dependencies(torch_tests ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS torch TIMEOUT 600)
endfunction()

tidemark_torch_tests(snapshot_torch_tests
  torch/torch_archive_test.cc
  torch/torch_catalog_test.cc
  torch/torch_dtypes_test.cc
  torch/torch_file_test.cc
  torch/torch_name_trace_test.cc
  torch/torch_optimizer_names_test.cc
  torch/torch_optimizer_source_test.cc
  torch/torch_ranks_test.cc
  torch/torch_scheduler_source_test.cc
  torch/torch_state_test.cc
  torch/torch_tensors_test.cc)
# With an accelerator, which registers itself with LibTorch for the whole of a process.
tidemark_torch_tests(snapshot_torch_device_tests
  pretend_accelerator.cc
  torch/torch_boxes_test.cc
  torch/torch_checkpointer_test.cc
  torch/torch_conversion_test.cc
  torch/torch_copy_test.cc
  torch/torch_device_training_test.cc
  torch/torch_device_image_test.cc
  torch/torch_flat_shards_test.cc
  torch/torch_layouts_test.cc
  torch/torch_load_test.cc
  torch/torch_saved_dtype_test.cc)
target_link_libraries(snapshot_torch_device_tests PRIVATE tidemark_eval)
