#include "redblue/ranks/simulate.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <tuple>

namespace redblue::ranks {
namespace {

class Simulation {
 public:
  Simulation(const World& world, const WireWidths& widths, const Network& network)
      : world_(world),
        widths_(widths),
        network_(network),
        operations_(operations_of_pair(world.problem()).to_double()) {
    for (int r = 0; r < world.ranks(); ++r) programs_.push_back(program_of(world, r));
    ranks_.resize(programs_.size());
  }

  std::vector<Simulated> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) moved = advance(r) || moved;
    }
    std::vector<Simulated> all;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next < programs_[r].steps.size())
        throw std::logic_error("a rank waits for a message that no rank sends");
      all.push_back({ranks_[r].now, ranks_[r].working, ranks_[r].waiting});
    }
    return all;
  }

 private:
  struct State {
    std::size_t next = 0;
    double now = 0, working = 0, waiting = 0;
    double out_free = 0, in_free = 0;  ///< when its link can take the next message
  };
  using Way = std::tuple<int, int, Cargo>;

  /// As many steps as can be done; was there one?
  bool advance(std::size_t r) {
    State& s = ranks_[r];
    const Program& program = programs_[r];
    const std::size_t from = s.next;
    while (s.next < program.steps.size() && step(static_cast<int>(r), s, program, program.steps[s.next])) ++s.next;
    return s.next > from;
  }

  bool step(int rank, State& s, const Program& program, const Step& step) {
    const double transfer = seconds_to_transfer(program, step);
    if (step.verb == Verb::send) {
      s.out_free = std::max(s.out_free, s.now) + transfer;
      on_way_[{rank, step.peer, step.cargo}].push_back(s.out_free + network_.latency);
      s.now += transfer * (1 - network_.overlap);
    } else if (step.verb == Verb::receive) {
      auto& way = on_way_[{step.peer, rank, step.cargo}];
      if (way.empty()) return false;
      s.in_free = std::max(way.front(), s.in_free + transfer);
      way.pop_front();
      s.waiting += std::max(0.0, s.in_free - s.now);
      s.now = std::max(s.now, s.in_free);
    } else if (step.verb == Verb::attend || step.verb == Verb::gradient) {
      const double work = seconds_of_work(program, step);
      s.working += work;
      s.now += work;
    }
    return true;
  }

  double seconds_to_transfer(const Program& program, const Step& step) const {
    if (step.verb != Verb::send && step.verb != Verb::receive) return 0;
    Traffic traffic;
    note(traffic, world_, program, step);
    return wire_bytes(traffic, widths_).to_double() / network_.bandwidth;
  }
  double seconds_of_work(const Program& program, const Step& step) const {
    if (network_.arithmetic <= 0) return 0;
    const Tile& q = program.tiles[static_cast<std::size_t>(step.tiles[0])];
    const Words pairs = world_.sight().pairs(step.queries, step.keys) * q.heads.size() * world_.problem().batch;
    return pairs.to_double() * operations_ / network_.arithmetic;
  }

  const World& world_;
  WireWidths widths_;
  Network network_;
  double operations_;
  std::vector<Program> programs_;
  std::vector<State> ranks_;
  std::map<Way, std::deque<double>> on_way_;  ///< when messages may arrive
};

}  // namespace

std::vector<Simulated> simulate(const World& world, const WireWidths& widths, const Network& network) {
  return Simulation(world, widths, network).run();
}

}  // namespace redblue::ranks
