#include "redblue/files/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "redblue/files/atomic_file.hpp"
#include "redblue/files/elements.hpp"
#include "redblue/files/input_file.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/npy_header.hpp"
#include "redblue/files/place.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr bool kHostIsLittle = std::endian::native == std::endian::little;

struct Element {
  DType dtype;
  bool swap_bytes;
};

std::optional<Element> element_of(const std::string& descr) {
  std::string_view code = descr;
  char order = '=';
  if (!code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos) {
    order = code[0];
    code.remove_prefix(1);
  }
  // '|' means that the order does not matter; '=' and no mark mean the machine's order. numpy reads all three alike.
  const bool swap = (order == '<' && !kHostIsLittle) || (order == '>' && kHostIsLittle);
  if (code == "f8") return Element{DType::f64, swap};
  if (code == "f4") return Element{DType::f32, swap};
  if (code == "f2") return Element{DType::f16, swap};
  if (code == "b1") return Element{DType::boolean, false};
  if (code == "V2" && order != '>') return Element{DType::bf16, !kHostIsLittle};  // void bytes have no order to reverse
  return std::nullopt;
}

std::string_view code_of(DType t) {
  switch (t) {
    case DType::f64:
      return "<f8";
    case DType::f32:
      return "<f4";
    case DType::f16:
      return "<f2";
    case DType::bf16:
      return "<V2";
    case DType::boolean:
      return "|b1";
    case DType::int8:
      return "|i1";
  }
  return {};
}

std::size_t little_endian(std::span<const std::byte> bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::size_t>(bytes[i]);
  return value;
}

/// The header, and where the data starts.
struct Parsed {
  NpyHeader header;
  std::size_t data_at;
};

IoError bad(const std::string& path, std::size_t offset, const std::string& what) {
  return {fmt::format("'{}' is not a valid .npy file: {}", path, what), path, static_cast<index_t>(offset)};
}

/// Where the text of the header starts, and where the data does.
struct Bounds {
  std::size_t header_at, data_at;
};

/// `start` may end after the first 12 bytes of a file of `size` bytes.
Bounds header_bounds(std::span<const std::byte> start, std::size_t size, const std::string& path) {
  if (start.empty()) throw bad(path, 0, "it is empty");
  if (start.size() < kMagic.size() || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0)
    throw bad(path, 0, "it does not start with \\x93NUMPY");
  if (start.size() < 10) throw bad(path, start.size(), "it ends within its first 10 bytes");
  const auto major = std::to_integer<int>(start[6]), minor = std::to_integer<int>(start[7]);
  if (major < 1 || major > 3 || minor != 0)
    throw bad(path, 6, fmt::format("format {}.{}; redblue reads 1.0, 2.0 and 3.0", major, minor));
  const std::size_t header_at = major == 1 ? 10 : 12;
  if (start.size() < header_at) throw bad(path, start.size(), "it ends within its first 12 bytes");
  const std::size_t header_size = little_endian(start.subspan(8, header_at - 8));
  if (header_size > size - header_at)
    throw bad(path, 8, fmt::format("a header of {} bytes, but only {} bytes follow", header_size, size - header_at));
  return {header_at, header_at + header_size};
}

/// `start` is a file of `size` bytes, up to the end of its header at least.
Parsed parse_header(std::span<const std::byte> start, std::size_t size, const std::string& path) {
  const auto [header_at, data_at] = header_bounds(start, size, path);
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + header_at, data_at - header_at);
  return {parse_npy_header(text, path, header_at), data_at};
}
Parsed parse_header(std::span<const std::byte> bytes, const std::string& path) {
  return parse_header(bytes, bytes.size(), path);
}

/// The tensor without its data, and where this starts, by the start of a file of `size` bytes, as above.
std::pair<FileTensor, std::size_t> described_tensor(std::span<const std::byte> start, std::size_t size,
                                                    const std::string& path) {
  auto [header, data_at] = parse_header(start, size, path);
  const std::optional<Element> found = element_of(header.descr);
  if (!found)
    throw Unsupported(
        fmt::format("'{}' holds elements of dtype '{}'; redblue reads f8, f4, f2 of either byte order, V2 as bf16, and "
                    "b1 for masks{}",
                    path, printable(header.descr, true),
                    header.descr.find_first_of("iu") < 2
                        ? ": whole numbers become a mask by .astype(bool), where true shows a key, "
                          "and numbers to add by .astype('f4')"
                        : ""));
  const Element element = *found;
  const auto width = static_cast<index_t>(size_of(element.dtype));
  const auto count = element_count(header.shape, width);
  if (!count)
    throw bad(path, data_at,
              fmt::format("shape ({}) of {} overflows 63 bits", text_of(header.shape), name_of(element.dtype)));
  if (static_cast<std::size_t>(*count * width) != size - data_at)
    throw bad(path, size,
              fmt::format("shape ({}) of {} needs {} bytes of data, the file has {}", text_of(header.shape),
                          name_of(element.dtype), *count * width, size - data_at));
  auto strides = header.fortran_order ? fortran_order_strides(header.shape) : c_order_strides(header.shape);
  return {{element.dtype, std::move(header.shape), std::move(strides), nullptr, element.swap_bytes}, data_at};
}

}  // namespace

std::string npy_header(const FileTensor& tensor) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", code_of(tensor.dtype),
                  fmt::join(tensor.shape, ", "), tensor.shape.size() == 1 ? "," : "");
  // magic, version and length take 10 bytes, 12 in format 2; the data starts at a multiple of 64
  const bool fits_v1 = header.size() + 10 + 64 <= 65535;
  const std::size_t before = fits_v1 ? 10 : 12;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';

  std::string start(kMagic);
  start += fits_v1 ? '\1' : '\2';
  start += '\0';
  for (std::size_t i = 0; i < (fits_v1 ? 2u : 4u); ++i) start += static_cast<char>(header.size() >> 8 * i & 0xff);
  return start + header;
}

NpyDescription describe_npy(std::span<const std::byte> bytes, const std::string& path) {
  NpyHeader header = parse_header(bytes, path).header;
  const std::optional<Element> element = element_of(header.descr);
  return {printable(header.descr, true), element ? std::optional(element->dtype) : std::nullopt,
          std::move(header.shape), header.fortran_order};
}

FileTensor parse_npy(std::span<const std::byte> bytes, const std::string& path) {
  auto [tensor, data_at] = described_tensor(bytes, bytes.size(), path);
  tensor.data = bytes.data() + data_at;
  return tensor;
}

TensorPlace npy_place(const std::string& path) {
  const InputFile file(path);
  const auto size = static_cast<std::size_t>(file.size());
  const std::size_t data_at = header_bounds(file.start(12), size, path).data_at;
  auto [t, offset] = described_tensor(file.start(static_cast<index_t>(data_at)), size, path);
  return {path, static_cast<index_t>(offset), t.dtype, std::move(t.shape), std::move(t.strides), t.swap_bytes};
}

namespace {

/// The elements of `count` x `width` bytes after the header, which must be there and nothing else.
std::span<const std::byte> elements_after(const Parsed& parsed, std::span<const std::byte> bytes, std::size_t width,
                                          const std::string& path) {
  const auto& [header, data_at] = parsed;
  const auto count = element_count(header.shape, static_cast<index_t>(width));
  const auto data = bytes.subspan(data_at);
  if (!count || static_cast<std::size_t>(*count) * width != data.size())
    throw bad(path, bytes.size(),
              fmt::format("shape ({}) of {} does not fit its {} bytes of data", text_of(header.shape),
                          printable(header.descr, true), data.size()));
  return data;
}

}  // namespace

WholeNumbers parse_npy_integers(std::span<const std::byte> bytes, const std::string& path) {
  Parsed parsed = parse_header(bytes, path);
  const std::string& descr = parsed.header.descr;
  const std::string_view code = std::string_view(descr).substr(std::min(descr.size(), descr.find_first_not_of("<>=|")));
  const bool is_signed = code.starts_with('i');
  constexpr std::string_view kWidths = "1248";
  if (code.size() != 2 || (!is_signed && code[0] != 'u') || kWidths.find(code[1]) == std::string_view::npos)
    throw Unsupported(fmt::format("'{}' holds elements of dtype '{}'; whole numbers are i or u of 1, 2, 4 or 8 bytes",
                                  path, printable(descr, true)));
  const auto width = static_cast<std::size_t>(code[1] - '0');
  const auto data = elements_after(parsed, bytes, width, path);
  if (parsed.header.fortran_order && std::ranges::count_if(parsed.header.shape, [](index_t n) { return n > 1; }) > 1)
    throw Unsupported(fmt::format("'{}' lies column by column; write it row by row", path));
  const bool reversed = descr[0] == '>' ? kHostIsLittle : descr[0] == '<' && !kHostIsLittle;
  WholeNumbers numbers{std::move(parsed.header.shape), {}};
  numbers.values.reserve(data.size() / width);
  for (std::size_t at = 0; at < data.size(); at += width) {
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < width; ++k) {  // from the most significant byte on
      const std::size_t byte = reversed == kHostIsLittle ? k : width - 1 - k;
      bits = bits << 8 | std::to_integer<std::uint64_t>(data[at + byte]);
    }
    const unsigned unused = 64 - 8 * static_cast<unsigned>(width);
    const auto value = static_cast<index_t>(bits << unused) >> unused;  // as if it were signed
    if (!is_signed && width == 8 && value < 0)
      throw InvalidProblem(fmt::format("'{}' holds {}, which is above 2^63", path, bits));
    numbers.values.push_back(is_signed ? value : static_cast<index_t>(bits));
  }
  return numbers;
}

std::string parse_npy_text(std::span<const std::byte> bytes, const std::string& path) {
  const Parsed parsed = parse_header(bytes, path);
  const std::string& descr = parsed.header.descr;
  const auto data = bytes.subspan(parsed.data_at);
  const std::size_t kind = descr.find_first_of("SU");
  if (kind > 1 || element_count(parsed.header.shape, 1) != 1)
    throw Unsupported(fmt::format("'{}' holds elements of dtype '{}', not one text", path, printable(descr, true)));
  const std::size_t width = descr[kind] == 'U' ? 4 : 1;  // UTF-32, or bytes
  std::string text;
  for (std::size_t i = 0; i < data.size() && data[i] != std::byte{0}; i += width) text += static_cast<char>(data[i]);
  return text;
}

Tensor read_npy(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  return Tensor(parse_npy(file->bytes(), path), file);
}

void write_npy(AtomicFile& out, const FileTensor& tensor) {
  check_writable(tensor, fmt::format("'{}'", out.path()));
  out.write(npy_header(tensor));
  write_elements(out, tensor);
}

index_t npy_file_size(const FileTensor& tensor) {
  return static_cast<index_t>(npy_header(tensor).size()) + tensor.size_bytes();
}

void write_npy(const std::string& path, const FileTensor& tensor) {
  AtomicFile out(path);
  write_npy(out, tensor);
  out.commit();
}

}  // namespace redblue::file
