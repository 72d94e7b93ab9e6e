#pragma once
#include <vector>

#include "redblue/language/machine.hpp"

/// Schedules whose loops depend on the data. Such a schedule says so in its signature, `template <DataMachine M>`, and
/// asks by decide() or look_up(). A machine without data answers the worst: what it counts is then no less than what
/// any data would cost (docs/machines.md).
namespace redblue {

/// What a schedule asks of a number in fast memory.
enum class Question : std::uint8_t {
  decision,  ///< what it does next, and so what it costs, depends on the answer
  index,     ///< a place in slow memory: the answer changes which words move, not how many
};

/// A machine with one primitive more,
///
///   index_t read_index(Question, const Arg& word, index_t worst)
///
/// the whole number that this word of a tile holds; `worst` on a machine without data.
template <class M>
concept DataMachine = Machine<M> && requires(M& m, const Arg& word) {
  { m.read_index(Question::decision, word, index_t{}) } -> std::same_as<index_t>;
};

/// The whole number in this word of a tile, for a decision. `worst` must be the answer after which most words move.
template <DataMachine M, class Word>
[[nodiscard]] index_t decide(M& m, const Word& word, index_t worst) {
  return m.read_index(Question::decision, detail::to_arg(word), worst);
}
/// The whole number in this word of a tile, for a place in slow memory. No count depends on it.
template <DataMachine M, class Word>
[[nodiscard]] index_t look_up(M& m, const Word& word, index_t otherwise) {
  return m.read_index(Question::index, detail::to_arg(word), otherwise);
}

/// Decisions that a machine was asked for.
struct Decisions {
  index_t asked = 0;
  index_t worst = 0;           ///< those of them that took the worst
  std::vector<Range> which{};  ///< which these are, in the order in which they were asked for; empty: the last ones

  /// One more.
  void add(bool is_worst) {
    if (is_worst && (which.empty() || which.back().end != asked)) which.push_back({asked, asked});
    if (is_worst) which.back().end = asked + 1;
    ++asked;
    worst += is_worst ? 1 : 0;
  }
  /// f(the number of a decision that took the worst)
  template <class F>
  void for_worst(const F& f) const {
    if (which.empty())
      for (index_t i = asked - worst; i < asked; ++i) f(i);
    for (const Range& run : which)
      for (index_t i = run.begin; i < run.end; ++i) f(i);
  }
  /// Appends the decisions of `other`, another worker, whatever the order in time. Both name which took the worst, or
  /// neither.
  Decisions& operator+=(const Decisions& other) {
    for (const Range& run : other.which) which.push_back(run.shifted(asked));
    asked += other.asked;
    worst += other.worst;
    return *this;
  }
  friend bool operator==(const Decisions&, const Decisions&) = default;
};

}  // namespace redblue
