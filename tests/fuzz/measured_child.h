// A process of its own for what must end soon and take little, whatever it reads.

#ifndef TIDEMARK_TESTS_FUZZ_MEASURED_CHILD_H_
#define TIDEMARK_TESTS_FUZZ_MEASURED_CHILD_H_

#include <functional>
#include <string>

namespace tidemark::fuzz {

// What `body` returns in a child, or how the child died. The test fails if it takes more than 256 MiB or 2 seconds of a
// processor, three times in a row; sanitizers take many times that. `body` may therefore run again. It is ended after
// 300 seconds of a clock, which are for what waits for ever, on a machine that has much else to do.
std::string InMeasuredChild(const std::function<std::string()>& body);

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_TESTS_FUZZ_MEASURED_CHILD_H_
