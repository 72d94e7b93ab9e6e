#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/names.hpp"
#include "redblue/masks/pattern.hpp"

/// In which order the queries and keys of a pattern are taken. Queries that see no key and keys that nobody sees come
/// last, and are dropped, but for in_place. A run gathers its arrays in this order and scatters its outputs back; the
/// words that a schedule moves depend on it, and the result does not.
namespace redblue {

/// natural: as they come. rcm: reverse Cuthill-McKee (Cuthill and McKee 1969) on the graph of queries and keys, so that
/// queries that share keys stand close. jaccard: greedily, each query followed by the one whose keys are most alike.
/// in_place: as they come, with nothing dropped, so that a run copies nothing.
enum class PatternOrder : std::uint8_t { natural, rcm, jaccard, in_place };
inline constexpr std::array<std::string_view, 4> kPatternOrderNames{"natural", "rcm", "jaccard", "in-place"};
constexpr const auto& names_of(PatternOrder /*any*/) { return kPatternOrderNames; }
/// One that is looked for: queries and keys do not stand as they come.
constexpr bool is_searched(PatternOrder o) { return o == PatternOrder::rcm || o == PatternOrder::jaccard; }
/// "in rcm order", "in place".
inline std::string phrase(PatternOrder o) {
  return o == PatternOrder::in_place ? "in place" : "in " + std::string(name_of(o)) + " order";
}

/// The query, or key, that stands at each place.
struct Order {
  std::vector<index_t> queries;
  std::vector<index_t> keys;

  /// Adds the positions and keys that are missing, in ascending order.
  void complete(index_t positions, index_t n_k);
  /// Does everything stay where it is?
  bool idle() const;
};

/// The places of `second` are those of `first`.
Order chained(const Order& first, const Order& second);

/// Has a pattern too many runs to search for an order? Then order_of finds none.
inline constexpr index_t kMostRunsToSearch = index_t{1} << 22;
bool too_large_to_search(const RunLists& rows);
/// For lists of rows that are `group` query heads at each position: heads of a position stay together. The result is
/// empty where finding an order other than natural would take too long.
std::optional<Order> order_of(PatternOrder kind, const RunLists& rows, index_t n_k, index_t group);
/// The lists in this order.
RunLists in_order(const RunLists& rows, const Order& order, index_t group);

}  // namespace redblue
