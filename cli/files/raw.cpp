#include "files/raw.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "redblue/language/error.hpp"

namespace redblue::cli {

namespace {

std::optional<index_t> whole_number(std::string_view digits) {
  index_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || n < 0) return std::nullopt;
  return n;
}

/// The numbers of "1x8x4096".
std::optional<std::vector<index_t>> numbers_of(std::string_view text, index_t least) {
  std::vector<index_t> numbers;
  while (true) {
    const std::size_t end = text.find('x');
    const auto number = whole_number(text.substr(0, end));
    if (!number || *number < least) return std::nullopt;
    numbers.push_back(*number);
    if (end == std::string_view::npos) return numbers;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

NamedRaw parse_raw(const std::string& text) {
  const auto fail = [&](const std::string& what) {
    return InvalidProblem(
        fmt::format("--raw {}: {}; give TENSOR=FILE:TYPE:SHAPE, with /STRIDES and @BYTE where it needs "
                    "them, as q=q.bin:f32:1x8x4096x64@128",
                    text, what));
  };
  const std::size_t equals = text.find('=');
  const std::size_t shape_at = text.rfind(':');
  const std::size_t type_at =
      shape_at == std::string::npos || shape_at == 0 ? std::string::npos : text.rfind(':', shape_at - 1);
  if (equals == std::string::npos || equals == 0) throw fail("it names no tensor before a =");
  if (type_at == std::string::npos || type_at <= equals + 1)
    throw fail("it is no file, type and shape with : between them");
  NamedRaw raw;
  raw.name = text.substr(0, equals);
  file::RawTensor& t = raw.tensor;
  t.path = text.substr(equals + 1, type_at - equals - 1);
  const std::string type = text.substr(type_at + 1, shape_at - type_at - 1);
  const auto known = type == name_of(DType::boolean) ? DType::boolean : dtype_from_name(type);
  if (!known) throw fail(fmt::format("'{}' is no type: f64, f32, f16, bf16, or bool for a bias", type));
  t.dtype = *known;
  std::string_view rest = std::string_view(text).substr(shape_at + 1);
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    t.offset = whole_number(rest.substr(at + 1));
    if (!t.offset) throw fail(fmt::format("'{}' is no byte of a file", rest.substr(at + 1)));
    rest = rest.substr(0, at);
  }
  if (const std::size_t at = rest.find('/'); at != std::string_view::npos) {
    t.strides = numbers_of(rest.substr(at + 1), 0);
    if (!t.strides) throw fail(fmt::format("'{}' is no list of strides in elements", rest.substr(at + 1)));
    rest = rest.substr(0, at);
  }
  const auto shape = numbers_of(rest, 1);
  if (!shape) throw fail(fmt::format("'{}' is no shape", rest));
  t.shape = *shape;
  if (t.strides && t.strides->size() != t.shape.size())
    throw fail(fmt::format("it has {} strides for {} dimensions", t.strides->size(), t.shape.size()));
  return raw;
}

}  // namespace redblue::cli
