# Tests of the LibTorch edge, labelled `torch`. They share one precompiled header, since LibTorch's own compile for many
# seconds; it belongs to an executable, because libraries are compiled with other flags.
add_library(torch_test_support STATIC torch_checkpoint.cc)
target_link_libraries(torch_test_support PUBLIC tidemark_build tidemark_torch fmt::fmt GTest::gmock GTest::gtest_main)

# Everything that the tests labelled `torch` run: what tests/torch2.sh builds.
add_custom_target(torch_tests)

function(tidemark_torch_test source)
  get_filename_component(name ${source} NAME_WE)
  set(name snapshot_${name})
  add_executable(${name} ${source} ${ARGN})
  target_link_libraries(${name} PRIVATE torch_test_support)
  if(TARGET snapshot_torch_dtypes_test AND NOT name STREQUAL snapshot_torch_dtypes_test)
    target_precompile_headers(${name} REUSE_FROM snapshot_torch_dtypes_test)
  else()
    target_precompile_headers(${name} PRIVATE torch_test_headers.h)
  endif()
  add_dependencies(torch_tests ${name})
  # One process for all tests of a file: loading LibTorch takes longer than running them.
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS torch TIMEOUT 600)
endfunction()

tidemark_torch_test(torch_dtypes_test.cc)
tidemark_torch_test(torch_tensors_test.cc)
tidemark_torch_test(torch_catalog_test.cc)
tidemark_torch_test(torch_checkpointer_test.cc pretend_accelerator.cc)
tidemark_torch_test(torch_copy_test.cc pretend_accelerator.cc)
tidemark_torch_test(torch_device_image_test.cc pretend_accelerator.cc)
tidemark_torch_test(torch_load_test.cc pretend_accelerator.cc)
tidemark_torch_test(torch_name_trace_test.cc)
tidemark_torch_test(torch_optimizer_source_test.cc)
tidemark_torch_test(torch_state_test.cc)
