#pragma once
#include <random>
#include <vector>

#include "redblue/machines/counting.hpp"
#include "redblue/schedules/schedule.hpp"

namespace redblue::claims {

/// What a machine without data answers where a schedule asks it to decide: any answer may come from some data.
enum class Answers : std::uint8_t { worst, least, any };
/// The answers that a claim is tried with: of a schedule that asks for decisions more than the worst.
inline std::vector<Answers> answers_for(const plan::Schedule& s) {
  if (s.decided == nullptr) return {Answers::worst};
  return {Answers::worst, Answers::least, Answers::any};
}

/// The machine that does nothing, with these answers.
class Answering : public machine::Passing<Answering, machine::Null> {
 public:
  explicit Answering(Answers how) : Passing(machine::nothing()), how_(how) {}

  index_t read_index(Question question, const Arg&, index_t worst) {
    if (question == Question::index) return worst;
    const index_t some = std::uniform_int_distribution<index_t>(0, worst)(random_);
    const bool often = std::uniform_int_distribution<int>(0, 1)(random_) == 1;
    const index_t answer = how_ == Answers::least ? 0 : how_ == Answers::worst || often ? worst : some;
    decisions_.add(answer == worst);
    return answer;
  }

  const Decisions& decisions() const { return decisions_; }

 private:
  Answers how_;
  Decisions decisions_;
  std::mt19937 random_{11};
};

}  // namespace redblue::claims
