#include "redblue/hardware/isa.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "redblue/hardware/family.hpp"
#include "redblue/language/error.hpp"

namespace redblue {

namespace {

std::vector<std::string_view> names(bool (*wanted)(Isa)) {
  std::vector<std::string_view> list;
  for (Isa isa : kIsas)
    if (wanted(isa)) list.push_back(name_of(isa));
  return list;
}

}  // namespace

bool is_available(Isa isa) { return isa == Isa::portable || hardware::processor_has(isa); }

Isa isa_asked_for(std::string_view name) {
  if (name.empty()) {
    Isa largest = Isa::portable;
    for (const Isa isa : kIsas)
      if (is_available(isa) && includes(isa, largest)) largest = isa;
    return largest;
  }
  const auto isa = isa_from_name(name);
  if (!isa)
    throw InvalidProblem(fmt::format("REDBLUE_ISA = '{}' is no instruction set: choose from {}", name,
                                     fmt::join(names([](Isa) { return true; }), ", ")));
  if (!is_available(*isa))
    throw Unsupported(fmt::format("REDBLUE_ISA = '{}': this machine does not have it; it has {}", name,
                                  fmt::join(names(is_available), ", ")));
  return *isa;
}

Isa best_isa() {
  static const std::string name = [] {
    const char* const value = std::getenv("REDBLUE_ISA");
    return std::string(value == nullptr ? "" : value);
  }();
  static const Isa isa = isa_asked_for(name);  // tried again by the next call if it throws
  return isa;
}

}  // namespace redblue
