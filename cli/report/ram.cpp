#include "report/ram.hpp"

#include <fmt/format.h>

namespace redblue::cli {

namespace {

std::string gib(Words bytes) { return fmt::format("{:.3g} GiB", bytes.to_double() / 0x1p30); }

}  // namespace

std::string Ram::text() const {
  return fmt::format("{} of memory ({} for inputs, {} for outputs, {} beside them)", gib(total()), gib(inputs),
                     gib(outputs), gib(beside));
}

Json Ram::json() const {
  return {{"inputs", to_json(inputs)},
          {"outputs", to_json(outputs)},
          {"beside", to_json(beside)},
          {"total", to_json(total())}};
}

}  // namespace redblue::cli
