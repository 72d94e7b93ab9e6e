#include "files/raw.hpp"

#include <fmt/format.h>

#include <charconv>

#include "redblue/files/raw.hpp"
#include "redblue/language/error.hpp"

namespace redblue::cli {

namespace {

std::optional<index_t> whole_number(std::string_view digits) {
  index_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || n < 0) return std::nullopt;
  return n;
}

}  // namespace

RawTensor::RawTensor(const std::string& text) {
  const auto fail = [&](const std::string& what) {
    return InvalidProblem(
        fmt::format("--raw {}: {}; give TENSOR=FILE:TYPE:SHAPE, or TENSOR=FILE:TYPE:SHAPE@BYTE, as "
                    "q=q.bin:f32:1x8x4096x64@128",
                    text, what));
  };
  const std::size_t equals = text.find('=');
  const std::size_t shape_at = text.rfind(':');
  const std::size_t type_at =
      shape_at == std::string::npos || shape_at == 0 ? std::string::npos : text.rfind(':', shape_at - 1);
  if (equals == std::string::npos || equals == 0) throw fail("it names no tensor before a =");
  if (type_at == std::string::npos || type_at <= equals + 1)
    throw fail("it is no file, type and shape with : between them");
  tensor = text.substr(0, equals);
  path = text.substr(equals + 1, type_at - equals - 1);
  const std::string type = text.substr(type_at + 1, shape_at - type_at - 1);
  const auto known = type == name_of(DType::boolean) ? DType::boolean : dtype_from_name(type);
  if (!known) throw fail(fmt::format("'{}' is no type: f64, f32, f16, bf16, or bool for a bias", type));
  dtype = *known;
  std::string_view sizes = std::string_view(text).substr(shape_at + 1);
  if (const std::size_t at = sizes.find('@'); at != std::string_view::npos) {
    offset = whole_number(sizes.substr(at + 1));
    if (!offset) throw fail(fmt::format("'{}' is no byte of a file", sizes.substr(at + 1)));
    sizes = sizes.substr(0, at);
  }
  while (true) {
    const std::size_t end = sizes.find('x');
    const auto size = whole_number(sizes.substr(0, end));
    if (!size || *size == 0) throw fail(fmt::format("'{}' is no size of a dimension", sizes.substr(0, end)));
    shape.push_back(*size);
    if (end == std::string_view::npos) break;
    sizes.remove_prefix(end + 1);
  }
}

file::Tensor RawTensor::read() const { return file::read_raw(path, dtype, shape, offset); }
file::TensorPlace RawTensor::place() const { return file::raw_place(path, dtype, shape, offset); }

}  // namespace redblue::cli
