#include "options/flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/problem/called_elsewhere.hpp"

namespace redblue::cli {

namespace {

constexpr auto table_of(const Problem* /*s*/) { return problem_options(); }
constexpr auto table_of(const plan::Options* /*s*/) { return plan::plan_options(); }

template <class O, class T>
void add_flag(const Command& command, const O& option, T& value, std::string_view values) {
  const std::string flag(option.about.flag);
  std::string help(option.about.help), unit(option.about.unit);
  if constexpr (Named<typename O::Number>) {
    if (values.empty()) help += fmt::format(": {}", fmt::join(names_of(typename O::Number{}), ", "));
    if (unit.empty()) unit = "NAME";
  }
  help += values;
  if constexpr (std::is_same_v<T, bool>) {
    command.flag(flag, value, help);
  } else {
    const Option added = command.option(flag, value, help);
    if (!unit.empty()) added.type_name(unit);
  }
}

}  // namespace

template <class Struct, class Table>
template <class Self, class F>
void Flags<Struct, Table>::each(Self& self, const F& f) {
  const auto table = table_of(static_cast<const Struct*>(nullptr));
  const auto one = [&]<std::size_t i>() {
    using O = std::tuple_element_t<i, Table>;
    if constexpr (option::kHasOrder<typename O::Number> || option::kIsWord<typename O::Number> ||
                  std::is_same_v<typename O::Value, bool>)
      f(std::get<i>(table), std::get<i>(self.values_), self.added_[i]);
  };
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (one.template operator()<i>(), ...);
  }(std::make_index_sequence<std::tuple_size_v<Table>>());
}

template <class Struct, class Table>
void Flags<Struct, Table>::add(const Command& command, std::string_view name, std::string_view values) {
  each(*this, [&](const auto& option, auto& value, bool& added) {
    if (option.name != name) return;
    add_flag(command, option, value, values);
    added = true;
  });
}

template <class Struct, class Table>
void Flags<Struct, Table>::add_others(const Command& command, bool all) {
  each(*this, [&](const auto& option, auto& value, bool& added) {
    if (option.about.flag.empty() || added || (option.about.source != option::Source::option && !all)) return;
    add_flag(command, option, value, "");
    added = true;
  });
}

template <class Struct, class Table>
bool Flags<Struct, Table>::given(std::string_view name) const {
  bool found = false;
  each(*this, [&](const auto& option, const auto& value, bool) {
    if (option.name == name) found = static_cast<bool>(value);
  });
  return found;
}

template <class Struct, class Table>
void Flags<Struct, Table>::apply_to(Struct& s) const {
  each(*this, [&](const auto& option, const auto& value, bool) {
    using Number = typename std::remove_cvref_t<decltype(option)>::Number;
    if (!value) return;
    const Struct by_default;
    if constexpr (std::is_same_v<Number, bool>) {
      option.of(s) = !option.of(by_default);
    } else if constexpr (Named<Number>) {
      option.of(s) = value_named<Unsupported, Number>(*value, fmt::format("{} {}", option.about.flag, *value));
    } else {
      if constexpr (option::kHasOrder<Number>)
        if (const option::Allowed& allowed = option.about.allowed; !allowed.wrong.empty() && !allowed.has(*value))
          throw InvalidProblem(fmt::format("{} {}{}", option.about.flag, *value, allowed.wrong));
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::remove_cvref_t<decltype(option.of(s))>>)
        option.of(s) = value;
      else
        option.of(s) = *value;
    }
  });
}

template class Flags<Problem, decltype(problem_options())>;
template class Flags<plan::Options, decltype(plan::plan_options())>;

}  // namespace redblue::cli
