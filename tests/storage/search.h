// Visits every state of a world that its events can lead to, depth first, in an order that is drawn.

#ifndef TIDEMARK_TESTS_STORAGE_SEARCH_H_
#define TIDEMARK_TESTS_STORAGE_SEARCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"

namespace tidemark::storage {

struct Explored {
  size_t states = 0;
  bool all = false;                // the bound was not reached
  std::string violation;           // empty: none was found
  std::vector<std::string> trace;  // the events that lead to it
};

// `World`: a value type with AbslHashValue. Two worlds with one hash are taken for one.
template <typename World>
class Search {
 public:
  Search(size_t states_max, uint32_t seed) : states_max_(states_max), random_(seed) {}
  virtual ~Search() = default;

  // Ends at the first violation. Once only.
  Explored Run(World first) {
    Visit("the beginning", std::move(first));
    while (!stack_.empty() && result_.violation.empty() && result_.states < states_max_) {
      Level& level = stack_.back();
      if (level.next.empty()) {
        stack_.pop_back();
        continue;
      }
      auto [event, world] = std::move(level.next.back());
      level.next.pop_back();
      Visit(std::move(event), std::move(world));
    }
    result_.all = stack_.empty() && result_.violation.empty();
    if (!result_.violation.empty()) {
      for (const Level& level : stack_) result_.trace.push_back(level.event);
    }
    return std::move(result_);
  }

 protected:
  // What is wrong with the world; empty: nothing.
  virtual std::string Violation(const World& world) = 0;
  // Calls Add for every event that can come next.
  virtual void Events(const World& world) = 0;

  void Add(std::string event, World world) { stack_.back().next.emplace_back(std::move(event), std::move(world)); }

 private:
  struct Level {
    std::string event;
    std::vector<std::pair<std::string, World>> next;
  };

  void Visit(std::string event, World world) {
    if (!visited_.insert(absl::HashOf(world)).second) return;
    ++result_.states;
    stack_.push_back(Level{.event = std::move(event)});
    result_.violation = Violation(world);
    if (!result_.violation.empty()) return;
    Events(world);
    std::shuffle(stack_.back().next.begin(), stack_.back().next.end(), random_);
  }

  const size_t states_max_;
  std::minstd_rand random_;
  Explored result_;
  std::vector<Level> stack_;
  absl::flat_hash_set<size_t> visited_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_SEARCH_H_
