#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "redblue/language/names.hpp"
#include "redblue/language/types.hpp"
#include "redblue/language/words.hpp"
#include "redblue/problem/operation.hpp"

/// What an option is: a field of a struct that is described once, in a table. JSON, pickles, the flags of the program,
/// the structs of C and the keywords of Python are made of the tables redblue/problem/options.hpp and
/// redblue/planner/options.hpp.
namespace redblue::option {

/// Which numbers an option may be. Bounds that depend on other options are checked where these are.
struct Allowed {
  std::string_view wrong{};  ///< what the error says behind "NAME = VALUE"; empty: any value will do
  std::optional<index_t> least{}, most{};
  bool below = false;  ///< below `most`, not up to it

  /// Neither NaN nor an infinity is.
  template <class T>
  constexpr bool has(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      if (!(x - x == 0)) return false;
    return !(least && x < static_cast<T>(*least)) &&
           !(most && (below ? x >= static_cast<T>(*most) : x > static_cast<T>(*most)));
  }
};

/// Where the value of an option comes from.
enum class Source : std::uint8_t {
  option,   ///< whoever asks gives it, under its name, in Python and in a file alike
  tensors,  ///< the arrays say it
  call,     ///< the function that is called says it
  phrase    ///< it is part of an option that each front end words in its own way, such as window and order
};

template <class Struct>
struct About {
  std::string_view help{};  ///< one line
  std::string_view flag{};  ///< the program's; of what is true by default it makes false. Empty: it words its own
  std::string_view unit{};  ///< what --help calls a value; empty: by its type
  Source source = Source::option;
  Allowed allowed{};
  bool pairs = false;  ///< does it say which pairs of a query and a key there are, or in which order they are taken?
  /// Which operations heed it? Null: all, or its own check says which. With another it keeps its default.
  bool (*serves)(const OperationFacts&) = nullptr;
  /// Does it belong to a forward pass and its gradient together? One problem may describe both passes, so that
  /// validate() lets it stand where only the other pass heeds it.
  bool of_both_passes = false;
  /// Does it say anything about this problem? Null: it does where it differs from its default.
  bool (*matters)(const Struct&) = nullptr;
};

/// Numbers, of which Words are some.
template <class T>
inline constexpr bool kHasOrder = std::is_same_v<T, index_t> || std::is_same_v<T, double> || std::is_same_v<T, Words>;

/// What people give as a word: a text, or a value by its name.
template <class T>
inline constexpr bool kIsWord = std::is_same_v<T, std::string> || Named<T>;

template <class T>
struct NumberIn {
  using type = T;
};
template <class T>
struct NumberIn<std::optional<T>> {
  using type = T;
};

/// `Of` returns the member of this name of a struct, of whatever struct has one, and `Has` the member has_NAME.
template <class Struct, class Of, class Has>
struct Option {
  using Value = std::remove_cvref_t<decltype(std::declval<Of>()(std::declval<Struct&>()))>;
  using Number = typename NumberIn<Value>::type;
  static constexpr bool kOptional = !std::is_same_v<Value, Number>;

  std::string_view name;
  Of of;
  Has has;
  About<Struct> about;

  bool is_set(const Struct& s) const {
    const Struct by_default;
    if constexpr (std::equality_comparable<Value>) return of(s) != of(by_default);
    return true;
  }
  bool matters(const Struct& s) const { return about.matters != nullptr ? about.matters(s) : is_set(s); }
};

template <class Struct, class Of, class Has>
constexpr Option<Struct, Of, Has> make(std::string_view name, Of of, Has has, About<Struct> about) {
  return {name, of, has, about};
}
/// The option that is the member `field` of `Struct`.
#define REDBLUE_OPTION(Struct, field, ...)                            \
  redblue::option::make<Struct>(                                      \
      #field, [](auto& s) -> decltype((s.field)) { return s.field; }, \
      [](auto& s) -> decltype((s.has_##field)) { return s.has_##field; }, redblue::option::About<Struct> __VA_ARGS__)

/// f(option) for each option of a table, in its order.
template <class Table, class F>
constexpr void for_each(const Table& table, const F& f) {
  std::apply([&](const auto&... option) { (f(option), ...); }, table);
}

/// Throws InvalidProblem with the name, the value and what would work.
[[noreturn]] void throw_not_allowed(std::string_view name, index_t value, const Allowed& allowed);
[[noreturn]] void throw_not_allowed(std::string_view name, double value, const Allowed& allowed);
[[noreturn]] void throw_not_allowed(std::string_view name, Words value, const Allowed& allowed);

/// Throws InvalidProblem with the name and the operations that heed it.
[[noreturn]] void throw_not_served(std::string_view name, std::string_view flag, Operation op,
                                   bool (*serves)(const OperationFacts&));

/// Throws InvalidProblem where an option is set that this operation does not heed; with `other_pass`, nor does the
/// other pass.
template <class Table, class Struct>
void require_served(const Table& table, const Struct& s, Operation op, bool other_pass) {
  const bool pass = facts_of(op).forward || facts_of(op).follows;
  for_each(table, [&](const auto& option) {
    const auto serves = option.about.serves;
    if (other_pass && pass && option.about.of_both_passes) return;
    if (serves != nullptr && !serves(facts_of(op)) && option.is_set(s))
      throw_not_served(option.name, option.about.flag, op, serves);
  });
}

/// Throws InvalidProblem unless each number of the struct is one that its option allows.
template <class Table, class Struct>
void require_allowed(const Table& table, const Struct& s) {
  for_each(table, [&](const auto& option) {
    using O = std::remove_cvref_t<decltype(option)>;
    if constexpr (kHasOrder<typename O::Number>) {
      const Allowed& allowed = option.about.allowed;
      if (allowed.wrong.empty()) return;
      const std::optional<typename O::Number> value = option.of(s);
      if (value && !allowed.has(*value)) throw_not_allowed(option.name, *value, allowed);
    }
  });
}

}  // namespace redblue::option
