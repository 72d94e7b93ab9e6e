#include "redblue/language/words.hpp"

#include <fmt/format.h>

#include <limits>

#include "redblue/language/error.hpp"

namespace redblue {

namespace detail {
void throw_overflow(const char* operation) {
  throw InvalidProblem(fmt::format(
      "a word count overflows 127 bits ('{}'): the sizes are too large to multiply; use sizes up to 2^40", operation));
}

void throw_capacity(Words needed, Words available) {
  throw CapacityError(
      fmt::format("fast memory is too small: {} words needed, {} available", needed.str(), available.str()), needed,
      available);
}
}  // namespace detail

index_t Words::to_index() const {
  if (value_ > std::numeric_limits<index_t>::max() || value_ < std::numeric_limits<index_t>::min())
    throw InvalidProblem(fmt::format("{} does not fit 63 bits", str()));
  return static_cast<index_t>(value_);
}

std::string Words::str() const { return fmt::format("{}", value_); }

}  // namespace redblue
