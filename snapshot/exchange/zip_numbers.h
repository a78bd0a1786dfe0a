// Numbers of zip archives that both reading and writing need: PKWARE's APPNOTE.TXT, version 6.3.10.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_NUMBERS_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_NUMBERS_H_

#include <cstdint>

namespace tidemark {

inline constexpr uint64_t kZipMax32 = 0xffffffff;  // stands for "see the 64-bit field"
inline constexpr uint64_t kZipMax16 = 0xffff;
inline constexpr uint16_t kZipStored = 0;   // the method of a member that is not compressed
inline constexpr uint16_t kZip64Field = 1;  // the extra field with the 64-bit numbers

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_ZIP_NUMBERS_H_
