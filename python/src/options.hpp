#pragma once
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "module.hpp"
#include "redblue/plan.hpp"
#include "redblue/problem.hpp"

/// The tables of options (redblue/problem/option.hpp) as Python has them.
namespace redblue::python {

/// Python's types. A number, a truth or a text passes torch's operators as it is; lists are tensors there.
template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_same_v<T, double>)
    return "float";
  else if constexpr (std::is_same_v<T, index_t> || std::is_same_v<T, Words>)
    return "int";
  else if constexpr (std::is_same_v<T, std::vector<index_t>>)
    return "list";
  else if constexpr (option::kIsWord<T>)
    return "str";
  else
    return "object";
}

/// Throws InvalidProblem, with the names that there are, for another.
template <Named E>
E named(std::string_view option, const std::string& name) {
  return value_named<InvalidProblem, E>(name, fmt::format("{} = '{}'", option, name));
}

template <class T>
nb::object to_python(const T& x) {
  if constexpr (Named<T>)
    return nb::cast(std::string(name_of(x)));
  else if constexpr (std::is_same_v<T, Words>)
    return integer_of(x);
  else
    return nb::cast(x);
}
template <class T>
void from_python(std::string_view option, nb::handle x, T& to) {
  if constexpr (Named<T>)
    to = named<T>(option, nb::cast<std::string>(x));
  else if constexpr (std::is_same_v<T, Words>)
    to = nb::cast<index_t>(x);
  else
    to = nb::cast<T>(x);
}

/// Options that have a type of Python.
template <class O>
constexpr bool kForPython = std::string_view(type_name<typename O::Number>()) != "object" || O::kOptional;

/// f(option) for each that Python knows, by the name in Python.
template <class Table, class F>
void for_python(const Table& table, const F& f) {
  option::for_each(table, [&](const auto& o) {
    if constexpr (kForPython<std::remove_cvref_t<decltype(o)>>) f(o);
  });
}

/// A property of the class for each option of in(OBJECT).
template <class Class, class Table, class In>
void add_properties(Class& c, const Table& table, const In& in) {
  for_python(table, [&](const auto& o) {
    using T = typename Class::Type;
    c.def_prop_rw(
        std::string(o.name).c_str(), [o, in](const T& s) { return to_python(o.of(in(s))); },
        [o, in](T& s, nb::handle x) { from_python(o.name, x, o.of(in(s))); }, nb::for_setter(nb::arg().none()));
  });
}

/// The values by name, and back: those that are missing have their defaults.
template <class Table, class S>
nb::dict values_of(const Table& table, const S& s) {
  nb::dict values;
  for_python(table, [&](const auto& o) { values[std::string(o.name).c_str()] = to_python(o.of(s)); });
  return values;
}
template <class Table, class S>
void set_values(const Table& table, const nb::dict& values, S& s) {
  for_python(table, [&](const auto& o) {
    if (const nb::str name(o.name.data(), o.name.size()); values.contains(name))
      from_python(o.name, values[name], o.of(s));
  });
}

/// The table: (name, flag, type, may it be None?, default, source, help) of each option. The sources are those of
/// option::Source, in its order.
template <class Struct, class Table>
nb::list described(const Table& table) {
  constexpr std::array kSources = {"option", "tensors", "call", "phrase"};
  const Struct by_default;
  nb::list list;
  for_python(table, [&](const auto& o) {
    using O = std::remove_cvref_t<decltype(o)>;
    const auto text = [](std::string_view x) { return nb::str(x.data(), x.size()); };
    list.append(nb::make_tuple(text(o.name), text(o.about.flag), type_name<typename O::Number>(), O::kOptional,
                               to_python(o.of(by_default)), kSources[static_cast<std::size_t>(o.about.source)],
                               text(o.about.help)));
  });
  return list;
}

}  // namespace redblue::python
