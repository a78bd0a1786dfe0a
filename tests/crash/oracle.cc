#include "tests/crash/oracle.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/io/check.h"

namespace tidemark::crash {
namespace {

std::string ValueText(const std::optional<double>& value) { return value ? absl::StrCat(*value) : "none"; }

std::string ContentText(const std::optional<int64_t>& content) {
  return content ? absl::StrCat("content ", *content) : "bytes that were never saved";
}

}  // namespace

std::string Saving(int64_t step, int64_t content) { return absl::StrCat("saving ", step, " ", content); }
std::string Saved(int64_t step, int64_t content) { return absl::StrCat("saved ", step, " ", content); }
std::string Refused(int64_t step, int64_t content) { return absl::StrCat("refused ", step, " ", content); }
std::string Deleting(int64_t step) { return absl::StrCat("letting-go ", step); }
std::string LetGo(int64_t step) { return absl::StrCat("let-go ", step); }
std::string Discarding(int64_t after) { return absl::StrCat("discarding ", after); }
std::string Discarded(int64_t after) { return absl::StrCat("discarded ", after); }
std::string Damaged(int64_t step) { return absl::StrCat("damaged ", step); }
std::string Reporting(int64_t step, std::string_view metric, double value) {
  return absl::StrCat("reporting ", step, " ", std::string(metric), " ", value);
}
std::string Reported(int64_t step, std::string_view metric, double value) {
  return absl::StrCat("reported ", step, " ", std::string(metric), " ", value);
}
std::string Pinning(int64_t step, bool pin) { return absl::StrCat("pinning ", step, " ", pin ? 1 : 0); }
std::string Pinned(int64_t step, bool pin) { return absl::StrCat("pinned ", step, " ", pin ? 1 : 0); }
std::string Tagging(int64_t step, std::string_view name, bool tag) {
  return absl::StrCat("tagging ", step, " ", std::string(name), " ", tag ? 1 : 0);
}
std::string Tagged(int64_t step, std::string_view name, bool tag) {
  return absl::StrCat("tagged ", step, " ", std::string(name), " ", tag ? 1 : 0);
}

double LossOf(int64_t step, int64_t content) { return static_cast<double>(step) + static_cast<double>(content) / 4096; }

void Oracle::Hear(std::string_view mark) {
  if (mark == kJournalIsSound) return;
  std::istringstream words{std::string(mark)};
  std::string what;
  int64_t number = -1;
  words >> what >> number;
  storage::Check(!words.fail() && number >= 0, "a mark that is none");
  if (what == "discarding" || what == "discarded") return HearOfDiscard(number, what == "discarded");
  Step& step = steps_[number];
  if (what == "saving" || what == "saved") {
    int64_t content = -1;
    words >> content;
    if (what == "saved") {
      std::erase_if(step.contents, [&](const auto& other) { return other.first != content; });
      step.may_be_absent = false;
      step.may_be_lost = false;
      step.being_discarded = false;
      step.discarded.clear();
    }
    step.contents.try_emplace(content);
  } else if (what == "refused") {
    int64_t content = -1;
    words >> content;
    step.contents.erase(content);
    step.discarded.erase(content);
  } else if (what == "letting-go") {
    step.may_be_absent = true;
  } else if (what == "let-go") {
    Step gone{.discarded = std::move(step.discarded)};
    gone.discarded.merge(step.contents);
    step = std::move(gone);
  } else if (what == "damaged") {
    step.damaged = true;
    step.may_be_absent = true;
    step.may_be_forgotten = false;
  } else if (what == "reporting" || what == "reported") {
    std::string metric;
    double value = 0;
    words >> metric >> value;
    step.said[metric].insert(value);
    for (auto& [content, metrics] : step.contents) {
      Values& values = metrics.try_emplace(metric, Values{std::nullopt}).first->second;
      if (what == "reported") values.clear();
      values.insert(value);
    }
  } else if (what == "pinning" || what == "pinned") {
    int pin = -1;
    words >> pin;
    if (what == "pinned") step.pinned.clear();
    step.pinned.insert(pin == 1);
    step.was_pinned = step.was_pinned || pin == 1;
    for (auto& [name, tagged] : step.tags) {
      if (pin == 0) HearOfTag(step, name, false, what == "pinned");
    }
  } else if (what == "tagging" || what == "tagged") {
    std::string name;
    int tag = -1;
    words >> name >> tag;
    HearOfTag(step, name, tag == 1, what == "tagged");
  } else {
    storage::Check(false, "a mark of no kind");
  }
  storage::Check(!words.fail(), "a mark that was cut short");
}

void Oracle::HearOfDiscard(int64_t after, bool promised) {
  for (auto step = steps_.upper_bound(after); step != steps_.end(); ++step) {
    Step& later = step->second;
    later.being_discarded = !promised && !later.may_be_absent;
    later.may_be_absent = true;
    if (promised) later.discarded.merge(std::exchange(later.contents, {}));
  }
}

void Oracle::HearOfTag(Step& step, const std::string& name, bool tag, bool promised) {
  std::set<bool>& tagged = step.tags.try_emplace(name, std::set<bool>{false}).first->second;
  if (promised) tagged.clear();
  tagged.insert(tag);
  if (!tag) return;
  if (promised) step.pinned.clear();
  step.pinned.insert(true);
  step.was_pinned = true;
}

void Oracle::LoseJournal() {
  for (auto& [number, step] : steps_) {
    step.may_be_forgotten = true;
    step.may_be_lost = step.may_be_absent;
    step.being_discarded = false;
    step.contents.merge(std::exchange(step.discarded, {}));
    for (auto& [content, metrics] : step.contents) {
      for (const auto& [metric, values] : step.said) {
        metrics[metric].insert(std::nullopt);
        metrics[metric].insert(values.begin(), values.end());
      }
    }
    step.pinned.insert(false);
    if (step.was_pinned) step.pinned.insert(true);
    for (auto& [name, tagged] : step.tags) tagged = {false, true};
  }
}

std::set<int64_t> Oracle::steps() const {
  std::set<int64_t> steps;
  for (const auto& [number, step] : steps_) steps.insert(number);
  return steps;
}

void Oracle::TagViolations(const Step& step, const SeenStep& seen, std::vector<std::string>& violations) {
  const std::set<std::string> tags(seen.tags.begin(), seen.tags.end());
  for (const auto& [name, tagged] : step.tags) {
    const bool has_it = tags.contains(name);
    if (tagged.contains(has_it)) continue;
    violations.push_back(absl::StrCat("tags: step ", seen.step, has_it ? " has " : " lacks ", name));
  }
  for (const std::string& name : tags) {
    if (step.tags.contains(name)) continue;
    violations.push_back(absl::StrCat("tags: step ", seen.step, " has ", name, ", which nobody gave it"));
  }
  if (!tags.empty() && !seen.pinned) {
    violations.push_back(absl::StrCat("tags: step ", seen.step, " has tags, and is not pinned"));
  }
}

void Oracle::OrderViolations(const std::set<int64_t>& committed, std::vector<std::string>& violations) const {
  std::optional<int64_t> gone;
  for (const auto& [number, step] : steps_) {
    if (!step.being_discarded) continue;
    if (!committed.contains(number)) {
      gone = gone.value_or(number);
    } else if (gone) {
      violations.push_back(absl::StrCat("discard: step ", *gone, " is gone, and step ", number, " behind it is not"));
    }
  }
}

void Oracle::DamageViolations(const Step& step, const SeenStep& seen, std::vector<std::string>& violations) {
  const std::string name = absl::StrCat("step ", seen.step);
  if (seen.restored.ok()) {
    violations.push_back(absl::StrCat("I4: ", name, " is damaged, and was restored all the same"));
  }
  const bool is_known =
      seen.state == StepState::kCommitted || seen.state == StepState::kDamaged || seen.state == StepState::kLost;
  if (is_known || step.may_be_forgotten) return;
  violations.push_back(absl::StrCat("I1: ", name, " was acknowledged and then damaged, and is ",
                                    std::string(StepStateName(seen.state))));
}

void Oracle::ViolationsAt(const Step& step, const SeenStep& seen, std::vector<std::string>& violations) const {
  const auto violated = [&](std::string_view what, const auto&... more) {
    violations.push_back(absl::StrCat(std::string(what), more...));
  };
  if (step.damaged) return DamageViolations(step, seen, violations);
  const std::string name = absl::StrCat("step ", seen.step);
  const bool committed = seen.state == StepState::kCommitted;
  const std::string state(StepStateName(seen.state));
  if (step.may_be_lost && !seen.restored.ok()) return;
  if (!committed) {
    if (!step.may_be_absent) {
      violated("I1: ", name, " was acknowledged, and is ", state, "; restoring it says: ", seen.restored.ToString());
    }
    // Records are written behind the files that they are of, so no crash leaves one without them.
    if (seen.state == StepState::kLost || seen.state == StepState::kDamaged) violated("I2: ", name, " is ", state);
    if (seen.restored.ok()) violated("I2: ", name, " is ", state, ", and was restored all the same");
    return;
  }
  if (!seen.restored.ok()) {
    violated(step.may_be_absent ? "I2: " : "I1: ", name,
             " is committed, and restoring it says: ", seen.restored.ToString());
    return;
  }
  const auto content = seen.content ? step.contents.find(*seen.content) : step.contents.end();
  if (content == step.contents.end()) {
    violated("I4: ", name, " was restored, and is ", ContentText(seen.content));
    return;
  }
  Metrics others = seen.metrics;
  const auto take = [&](const std::string& metric) {
    const auto found = others.find(metric);
    const std::optional<double> value = found == others.end() ? std::nullopt : std::optional(found->second);
    if (found != others.end()) others.erase(found);
    return value;
  };
  if (const auto loss = take("loss"); loss != LossOf(seen.step, *seen.content)) {
    violated("I2: ", name, " has loss ", ValueText(loss), ", not ", LossOf(seen.step, *seen.content));
  }
  for (const auto& [metric, values] : content->second) {
    const std::optional<double> value = take(metric);
    if (values.contains(value)) continue;
    violated("metrics: ", name, " has ", metric, " ", ValueText(value), "; it may have ",
             absl::StrJoin(values, " or ", [](std::string* out, const auto& v) { out->append(ValueText(v)); }));
  }
  for (const auto& [metric, value] : others) violated("metrics: ", name, " has ", metric, ", which nobody reported");
  if (!step.pinned.contains(seen.pinned)) violated("pins: ", name, seen.pinned ? " is pinned" : " is not pinned");
  TagViolations(step, seen, violations);
}

std::vector<std::string> Oracle::Violations(const Seen& seen) const {
  std::vector<std::string> violations;
  std::set<int64_t> shown;
  std::set<int64_t> committed;
  for (const SeenStep& step : seen.steps) {
    shown.insert(step.step);
    if (step.state == StepState::kCommitted) committed.insert(step.step);
    const auto heard = steps_.find(step.step);
    ViolationsAt(heard == steps_.end() ? Step() : heard->second, step, violations);
  }
  const int64_t highest = committed.empty() ? -1 : *committed.rbegin();
  OrderViolations(committed, violations);
  for (const auto& [number, step] : steps_) {
    if (step.damaged && !seen.with_shards.contains(number)) {
      violations.push_back(absl::StrCat("quarantine: step ", number, " was damaged, and its shard is gone"));
    }
    if (!shown.contains(number) && !step.may_be_absent) {
      violations.push_back(absl::StrCat("I1: step ", number, " was acknowledged, and nobody knows of it"));
    }
    if (step.may_be_absent || highest >= number) continue;
    violations.push_back(absl::StrCat("I3: the latest step is ", highest, ", behind step ", number));
  }
  if (committed.empty()) {
    if (!absl::IsNotFound(seen.found_latest) || !absl::IsNotFound(seen.restored_latest)) {
      violations.push_back(absl::StrCat("I3: nothing is committed, and the latest step is ", seen.latest, " (",
                                        seen.found_latest.ToString(), "), restored ", seen.restored_step, " (",
                                        seen.restored_latest.ToString(), ")"));
    }
    return violations;
  }
  if (!seen.found_latest.ok() || seen.latest != highest) {
    violations.push_back(absl::StrCat("I3: step ", highest, " is committed, and the latest is ", seen.latest, ": ",
                                      seen.found_latest.ToString()));
  }
  if (!seen.restored_latest.ok() || seen.restored_step != highest) {
    violations.push_back(absl::StrCat("I3: step ", highest, " is committed, and the latest restored is ",
                                      seen.restored_step, ": ", seen.restored_latest.ToString()));
    return violations;
  }
  const auto heard = steps_.find(highest);
  if (!seen.restored_content || heard == steps_.end() || !heard->second.contents.contains(*seen.restored_content)) {
    violations.push_back(
        absl::StrCat("I4: the latest step, ", highest, ", was restored, and is ", ContentText(seen.restored_content)));
  }
  return violations;
}

std::vector<std::string> Oracle::MarksOf(const Seen& seen) const {
  std::vector<std::string> marks;
  for (const SeenStep& step : seen.steps) {
    const auto heard = steps_.find(step.step);
    if (heard == steps_.end() || heard->second.damaged) continue;
    if (step.state != StepState::kCommitted || !step.content) {
      if (!heard->second.may_be_lost) marks.push_back(LetGo(step.step));
      continue;
    }
    marks.push_back(Saved(step.step, *step.content));
    for (const auto& [metric, value] : step.metrics) {
      if (metric != "loss") marks.push_back(Reported(step.step, metric, value));
    }
    marks.push_back(Pinned(step.step, step.pinned));
    const std::set<std::string> tags(step.tags.begin(), step.tags.end());
    for (const auto& [name, tagged] : heard->second.tags) {
      marks.push_back(Tagged(step.step, name, tags.contains(name)));
    }
  }
  return marks;
}

}  // namespace tidemark::crash
