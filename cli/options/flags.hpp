#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "command_line.hpp"
#include "redblue/planner/options.hpp"
#include "redblue/problem/options.hpp"

namespace redblue::cli {

/// What a command line says about the options of a table (redblue/problem/option.hpp) that have a flag.
template <class Struct, class Table>
class Flags {
 public:
  /// The flag of this option: where its place in --help is not that of all others, or where its help goes on with
  /// `values`, in place of the names of its values.
  void add(const Command& command, std::string_view name, std::string_view values = "");
  /// The flags that were not added before: `all`, or only those of what neither arrays nor the operation say.
  void add_others(const Command& command, bool all);
  bool given(std::string_view name) const;
  /// Sets what was given. Throws, with the flag, InvalidProblem for a number that its option does not allow, and
  /// Unsupported, with the names that there are, for another name.
  void apply_to(Struct& s) const;

 private:
  template <class O>
  using Value =
      std::conditional_t<std::is_same_v<typename O::Value, bool>, bool,
                         std::conditional_t<option::kIsWord<typename O::Number>, std::optional<std::string>,
                                            std::conditional_t<std::is_same_v<typename O::Number, double>,
                                                               std::optional<double>, std::optional<index_t>>>>;
  template <class T>
  struct ValuesOf;
  template <class... O>
  struct ValuesOf<std::tuple<O...>> {
    using type = std::tuple<Value<O>...>;
  };
  /// f(option, value, was it added?) for each that can have a flag.
  template <class Self, class F>
  static void each(Self& self, const F& f);

  typename ValuesOf<Table>::type values_{};
  std::array<bool, std::tuple_size_v<Table>> added_{};
};

using ProblemFlags = Flags<Problem, decltype(problem_options())>;
using PlannerFlags = Flags<plan::Options, decltype(plan::plan_options())>;
extern template class Flags<Problem, decltype(problem_options())>;
extern template class Flags<plan::Options, decltype(plan::plan_options())>;

}  // namespace redblue::cli
