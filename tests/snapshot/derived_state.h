#ifndef TIDEMARK_TESTS_SNAPSHOT_DERIVED_STATE_H_
#define TIDEMARK_TESTS_SNAPSHOT_DERIVED_STATE_H_

#include "tidemark/state.h"

namespace tidemark {

// A state with a part of its own, as TorchState has, which the test sets.
class DerivedState final : public State {
 public:
  using State::derived_begin;
  using State::SetDerivedEntries;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_DERIVED_STATE_H_
