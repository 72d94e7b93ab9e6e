#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "redblue/runtime/run.hpp"

namespace redblue::cli {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;
/// JSON in the order of insertion, with integers to 2^127: word counts are exact in print too.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, Int128, UInt128, double>;

inline Int128 to_json(Words w) { return w.value(); }
Json to_json(const Problem& p);
Json to_json(const bound::Bound& b);
Json to_json(const std::vector<schedule::TileSize>& tiling);
/// [{"rows":..,"keys":..,"lo":..,"hi":..,"prefix":..,"tiling":{..}},..]: the tilings of sequences of these shapes. A
/// row at position p of its sequence sees keys from p + lo to before p + hi, and the first `prefix`; an edge that is
/// missing hides nothing.
Json own_tilings_to_json(const std::vector<schedule::TileSize>& tiling);
Json to_json(const model::Time& t);
Json to_json(const plan::Row& row);
/// {"flops":..,"relative":..,"products":..}: the arithmetic beside the words.
Json work_to_json(const plan::Row& row);
Json to_json(const plan::Options& options);
Json to_json(const plan::Plan& plan);
/// {"reads":..,"writes":..,"io":..,"peak":..,"flops":..,"per_array":{"Q":{"reads":..,"writes":..},..}}
Json counts_to_json(const Io& io, Words peak, Words flops);

/// With a line feed at the end.
void print(const Json& j);

}  // namespace redblue::cli
