// What is not a finite number. Floats, for both become the same as a double.

#ifndef TIDEMARK_TESTS_NON_FINITE_H_
#define TIDEMARK_TESTS_NON_FINITE_H_

#include <limits>

namespace tidemark {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_NON_FINITE_H_
