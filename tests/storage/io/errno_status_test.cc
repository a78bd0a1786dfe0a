#include "storage/io/errno_status.h"

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;

TEST(ErrnoStatus, SaysOperationPathAndTheSystemsWords) {
  EXPECT_THAT(
      ErrnoStatus(ENOSPC, "write 512 bytes at 4096 to", "run/x"),
      StatusIs(StatusCode::kResourceExhausted, "write 512 bytes at 4096 to run/x: No space left on device (ENOSPC)"));
}

TEST(ErrnoStatus, ShowsTheNumberOfAnErrorWithoutName) {
  EXPECT_THAT(ErrnoStatus(4321, "read", "x"), StatusIs(StatusCode::kInternal, "read x: unknown error (errno 4321)"));
}

TEST(ErrnoStatus, IsKnownByItsLastWords) {
  const absl::Status status = ErrnoStatus(EROFS, "create", "run/x");
  EXPECT_EQ(ErrnoCodeOf("IO error: while opening: " + std::string(status.message())), StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoCodeOf("(EROFS) was what somebody said"), std::nullopt);
  EXPECT_EQ(ErrnoCodeOf("it ended (EARLY)"), std::nullopt);
  EXPECT_EQ(ErrnoCodeOf(""), std::nullopt);
}

class ErrnoStatusCode : public testing::TestWithParam<std::pair<int, StatusCode>> {};

TEST_P(ErrnoStatusCode, IsWhatACallerCanActOn) {
  const auto [error, code] = GetParam();
  EXPECT_EQ(ErrnoStatus(error, "open", "x").code(), code) << strerrorname_np(error);
}

INSTANTIATE_TEST_SUITE_P(All, ErrnoStatusCode,
                         testing::ValuesIn(std::initializer_list<std::pair<int, StatusCode>>{
                             {ENOENT, StatusCode::kNotFound},
                             {EEXIST, StatusCode::kAlreadyExists},
                             {ENOTEMPTY, StatusCode::kAlreadyExists},
                             {ENOSPC, StatusCode::kResourceExhausted},
                             {EDQUOT, StatusCode::kResourceExhausted},
                             {EMLINK, StatusCode::kResourceExhausted},
                             {EFBIG, StatusCode::kResourceExhausted},
                             {ENOMEM, StatusCode::kResourceExhausted},
                             {EMFILE, StatusCode::kResourceExhausted},
                             {ENFILE, StatusCode::kResourceExhausted},
                             {EACCES, StatusCode::kPermissionDenied},
                             {EPERM, StatusCode::kPermissionDenied},
                             {EROFS, StatusCode::kPermissionDenied},
                             {ENOTDIR, StatusCode::kFailedPrecondition},
                             {EISDIR, StatusCode::kFailedPrecondition},
                             {ELOOP, StatusCode::kFailedPrecondition},
                             {ENXIO, StatusCode::kFailedPrecondition},
                             {EXDEV, StatusCode::kFailedPrecondition},
                             {EINVAL, StatusCode::kInvalidArgument},
                             {ENAMETOOLONG, StatusCode::kInvalidArgument},
                             {EOPNOTSUPP, StatusCode::kUnimplemented},
                             {ENOSYS, StatusCode::kUnimplemented},
                             {EAGAIN, StatusCode::kUnavailable},
                             {EBUSY, StatusCode::kUnavailable},
                             {ETIMEDOUT, StatusCode::kUnavailable},
                             {ECANCELED, StatusCode::kCancelled},
                             {EIO, StatusCode::kInternal},
                             {EBADF, StatusCode::kInternal}}),
                         [](const auto& info) { return strerrorname_np(info.param.first); });

}  // namespace
}  // namespace tidemark::storage
