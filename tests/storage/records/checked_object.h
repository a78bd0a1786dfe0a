// A JSON object with its check, as stores of the first format have them in inbox/ and in steps.

#ifndef TIDEMARK_TESTS_STORAGE_RECORDS_CHECKED_OBJECT_H_
#define TIDEMARK_TESTS_STORAGE_RECORDS_CHECKED_OBJECT_H_

#include <span>
#include <string>

#include "fmt/format.h"
#include "storage/bytes/ids.h"

namespace tidemark::storage {

// `object`, a JSON object as text, with the check that a writer would give it.
inline std::string WithCheck(std::string object) {
  object.pop_back();
  return object + fmt::format(",\"check\":\"{:016x}\"}}\n", ChecksumOf(std::as_bytes(std::span(object))));
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RECORDS_CHECKED_OBJECT_H_
