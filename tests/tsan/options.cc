// What ThreadSanitizer starts with in every program of the preset tsan; the variable TSAN_OPTIONS adds to it.

extern "C" {

const char* __tsan_default_options();
const char* __tsan_default_options() {
  // Tests of a full disk and of other rights run in a child, forked where RocksDB may have threads already; there they
  // start threads of their own. die_after_fork would end the child at the first.
  return "die_after_fork=0";
}

const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() {
  // Debian's RocksDB is not instrumented. Its memtables and caches are handed from thread to thread with atomics, which
  // the sanitizer does not see, while it does see the memcpy, memcmp and delete around them. What librocksdb calls is
  // ignored; what this project does itself is not, its calls of RocksDB included.
  return "called_from_lib:librocksdb.so\n";
}

}  // extern "C"
