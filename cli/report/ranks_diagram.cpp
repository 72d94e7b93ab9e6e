#include "report/ranks_diagram.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace redblue::cli {

namespace {

/// The ranks take turns at their steps, and wait for messages that were not sent yet.
class SequenceDiagram {
 public:
  explicit SequenceDiagram(const ranks::World& world) : world_(world) {
    for (int r = 0; r < world.ranks(); ++r) programs_.push_back(program_of(world, r));
    at_.assign(programs_.size(), 0);
  }

  std::string text() {
    text_ = "sequenceDiagram\n";
    for (std::size_t r = 0; r < programs_.size(); ++r) text_ += fmt::format("  participant R{0} as rank {0}\n", r);
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t r = 0; r < programs_.size(); ++r)
        while (at_[r] < programs_[r].steps.size() && take(static_cast<int>(r), programs_[r].steps[at_[r]])) {
          ++at_[r];
          moves = true;
        }
    }
    return text_;
  }

 private:
  /// False where the message that it waits for was not sent yet.
  bool take(int rank, const ranks::Step& s) {
    if (s.verb == ranks::Verb::send) {
      sent_[{rank, s.peer}].push_back(message(rank, s));
    } else if (s.verb == ranks::Verb::receive) {
      std::deque<std::string>& queue = sent_[{s.peer, rank}];
      if (queue.empty()) return false;
      text_ += fmt::format("  R{}-)R{}: {}\n", s.peer, rank, queue.front());
      queue.pop_front();
    } else if (const std::string work = note(s); !work.empty()) {
      text_ += fmt::format("  Note over R{}: {}\n", rank, work);
    }
    return true;
  }
  const ranks::Program& program(int rank) const { return programs_[static_cast<std::size_t>(rank)]; }
  const ranks::Tile& tile(int rank, int t) const { return program(rank).tiles[static_cast<std::size_t>(t)]; }

  /// "K, V: 2048 words"
  std::string message(int rank, const ranks::Step& s) const {
    std::vector<std::string_view> names;
    for (const ranks::Piece& p : s.pieces)
      if (const std::string_view name = name_of(tile(rank, p.tile).array);
          std::ranges::find(names, name) == names.end())
        names.push_back(name);
    return fmt::format("{}: {} words", fmt::join(names, ", "), words_of(world_, program(rank), s.pieces).str());
  }
  /// Work that takes time; nothing for the rest.
  static std::string note(const ranks::Step& s) {
    switch (s.verb) {
      case ranks::Verb::attend:
      case ranks::Verb::gradient:
        return fmt::format("{} of {} queries, {} keys", name_of(s.verb), s.queries.count(), s.keys.count());
      case ranks::Verb::merge:
      case ranks::Verb::add:
      case ranks::Verb::sinks:
        return std::string(name_of(s.verb));
      default:
        return {};
    }
  }

  const ranks::World& world_;
  std::vector<ranks::Program> programs_;
  std::vector<std::size_t> at_;
  std::map<std::pair<int, int>, std::deque<std::string>> sent_;
  std::string text_;
};

}  // namespace

std::string diagram_of(const ranks::World& world) { return SequenceDiagram(world).text(); }

}  // namespace redblue::cli
