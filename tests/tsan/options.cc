// What ThreadSanitizer starts with in every program of the preset tsan; the variable TSAN_OPTIONS adds to it.

extern "C" {

const char* __tsan_default_options();
const char* __tsan_default_options() {
  // die_after_fork: tests of a full disk and of other rights run in a child, forked where RocksDB may have threads
  // already. There they start threads of their own, at the first of which the child would be ended.
  // history_size: of an access too long ago the sanitizer has forgotten where it came from, so that no suppression
  // matches it.
  return "die_after_fork=0:history_size=7";
}

const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() {
  // Debian's RocksDB is not instrumented. Its memtables and caches go from thread to thread by atomics, which the
  // sanitizer does not see.
  return
      // It does see the memcpy, memcmp, pread and delete around them.
      "called_from_lib:librocksdb.so\n"
      // RocksDB also calls templates and inline functions whose copy in our programs is instrumented, such as those of
      // std::string and of rocksdb::Logger. None of our own functions runs below RocksDB but those of NullLogger, which
      // do nothing.
      "race:librocksdb.so\n"
      // Blocks are read into RocksDB's memory by our own files, which the sanitizer sees, and handed to other threads
      // by RocksDB. Where it has forgotten who read a block, nothing but who looks at it is left to tell: an inline
      // function of RocksDB's, one of ours that only decodes what it is given, or, in a compaction, std::string, called
      // by libstdc++: there the sanitizer sees no frame of RocksDB's. That hides our own races while a string grows,
      // too.
      "race:rocksdb::DB::Get\n"
      "race:std::__cxx11::basic_string<*>::_M_append\n"
      "race:tidemark::storage::Decode*Record\n"
      // RocksDB's locking is ignored. Some of its functions end with a jump to the unlocking, which then seems to be
      // done by who has called them: in a test, which holds RocksDB's threads, for the only time.
      "mutex:CompactionHold\n";
}

}  // extern "C"
