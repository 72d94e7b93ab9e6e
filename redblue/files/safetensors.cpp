#include "redblue/files/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "redblue/files/input_file.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/place.hpp"
#include "redblue/files/safetensors_dtype.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

namespace {

using nlohmann::json;

/// A header without its tensors' data.
struct Header {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data
  Safetensors::Metadata metadata;
};

/// Checks one header; `bad` makes the error. `data` is how many bytes follow it.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::size_t data, const std::string& path)
      : text_(text), data_(data), path_(path) {}

  Header read() const {
    Header header;
    const json all = parse();
    for (const auto& [name, info] : all.items()) {
      if (name == "__metadata__")
        header.metadata = metadata(info);
      else
        header.entries.push_back(entry(name, info));
    }
    order(header.entries);
    return header;
  }

  [[nodiscard]] IoError bad(const std::string& what, std::size_t offset = 8) const {
    return IoError(fmt::format("'{}' is not a valid safetensors file: {}", path_, what), path_,
                   static_cast<index_t>(offset));
  }

 private:
  static constexpr int kMaxDepth = 16;  // the format needs 3

  json parse() const {
    if (text_.empty() || text_.front() != '{') throw bad("its header does not start with '{'");
    // nlohmann/json takes a NUL for the end of its input and would ignore the text after it
    if (const auto nul = text_.find('\0'); nul != std::string_view::npos)
      throw bad("a NUL byte in its header", 8 + nul);
    std::vector<std::set<std::string>> keys;  // of the objects that are open
    const auto check = [&](int depth, json::parse_event_t event, json& value) {
      if (depth > kMaxDepth) throw bad("its header is nested too deeply");
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
        throw bad(fmt::format("'{}' twice in its header", printable(value.get<std::string>())));
      return true;
    };
    try {
      return json::parse(text_.begin(), text_.end(), check);
    } catch (const json::parse_error& e) {
      throw bad(fmt::format("its header is not JSON: {}", printable(e.what(), true, 300)), 8 + e.byte);
    } catch (const json::exception& e) {
      throw bad(fmt::format("its header is not JSON: {}", printable(e.what(), true, 300)));
    }
  }

  Safetensors::Metadata metadata(const json& object) const {
    if (!object.is_object()) throw bad("__metadata__ is not an object");
    Safetensors::Metadata out;
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) throw bad(fmt::format("__metadata__ '{}' is not a string", printable(key)));
      out[key] = value.get<std::string>();
    }
    return out;
  }

  SafetensorsEntry entry(const std::string& name, const json& info) const {
    const auto bad_tensor = [&](const std::string& what) {
      return bad(fmt::format("tensor '{}' {}", printable(name), what));
    };
    if (!info.is_object()) throw bad_tensor("is not an object");
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!info.contains(key)) throw bad_tensor(fmt::format("has no {}", key));
    SafetensorsEntry e{name, {}, {}};
    if (!info["dtype"].is_string()) throw bad_tensor("has a dtype that is not a string");
    e.dtype = info["dtype"].get<std::string>();

    if (!info["shape"].is_array()) throw bad_tensor("has a shape that is not a list");
    for (const json& n : info["shape"]) e.shape.push_back(whole_number(n, bad_tensor, "shape"));
    const json& offsets = info["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) throw bad_tensor("has data_offsets that are not two numbers");
    const auto begin = static_cast<std::size_t>(whole_number(offsets[0], bad_tensor, "data_offsets"));
    const auto end = static_cast<std::size_t>(whole_number(offsets[1], bad_tensor, "data_offsets"));
    if (begin > end || end > data_)
      throw bad_tensor(fmt::format("has data_offsets [{}, {}], outside the {} bytes of data", begin, end, data_));
    e.begin = data_at() + static_cast<index_t>(begin);
    e.end = data_at() + static_cast<index_t>(end);

    const auto bits = bits_of_safetensors_dtype(e.dtype);
    // counted in bits: up to eight times stricter than necessary, but only for sizes that no file has
    const auto count = element_count(e.shape, bits ? *bits : 1);
    if (!count) throw bad_tensor(fmt::format("has shape [{}], whose size overflows 63 bits", text_of(e.shape)));
    const index_t bytes = e.end - e.begin;
    if (bits && (*count * *bits % 8 != 0 || *count * *bits / 8 != bytes))
      throw bad_tensor(
          fmt::format("of shape [{}] and dtype {} has {} bytes of data", text_of(e.shape), e.dtype, bytes));
    return e;
  }

  /// Sorts the entries by their data, which must fill the rest of the file.
  void order(std::vector<SafetensorsEntry>& entries) const {
    const auto place = [](const SafetensorsEntry& e) { return std::tuple(e.begin, e.end); };
    std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
    index_t end = data_at();
    for (const auto& e : entries) {
      if (e.begin != end)
        throw bad(fmt::format("the data of tensor '{}' starts at {}, that before it ends at {}", printable(e.name),
                              e.begin - data_at(), end - data_at()));
      end = e.end;
    }
    if (end - data_at() != static_cast<index_t>(data_))
      throw bad(fmt::format("its tensors end at byte {} of {} bytes of data", end - data_at(), data_));
  }

  /// The byte of the file where the data begins.
  index_t data_at() const { return 8 + static_cast<index_t>(text_.size()); }

  template <class BadTensor>
  static index_t whole_number(const json& n, const BadTensor& bad_tensor, std::string_view where) {
    const bool fits = n.is_number_unsigned() && n.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
    if (!fits)
      throw bad_tensor(
          fmt::format("has {} in its {}, not a whole number from 0 to 2^63 - 1", printable(n.dump()), where));
    return n.get<index_t>();
  }

  std::string_view text_;
  std::size_t data_;
  const std::string& path_;
};

/// The length of the text of the header. `start` may end after the first 8 bytes of a file of `size` bytes.
std::size_t header_length(std::span<const std::byte> start, std::size_t size, const std::string& path) {
  const auto bad = [&](const std::string& what) { return HeaderReader({}, 0, path).bad(what, 0); };
  if (start.size() < 8) throw bad(fmt::format("{} bytes; the length of the header alone takes 8", start.size()));
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(start[i]);
  if (length > kMaxHeaderBytes)
    throw bad(fmt::format("a header of {} bytes, above the limit of {}", length, kMaxHeaderBytes));
  if (length > size - 8) throw bad(fmt::format("a header of {} bytes, but only {} bytes follow", length, size - 8));
  return length;
}

/// `start` is a file of `size` bytes, up to the end of its header at least.
Header read_header(std::span<const std::byte> start, std::size_t size, const std::string& path) {
  const std::size_t length = header_length(start, size, path);
  return HeaderReader({reinterpret_cast<const char*>(start.data()) + 8, length}, size - 8 - length, path).read();
}

/// The type of a tensor. Throws Unsupported for one that redblue does not compute with.
DType known_dtype(const SafetensorsEntry& e, const std::string& path) {
  if (const auto dtype = safetensors_dtype(e.dtype)) return *dtype;
  throw Unsupported(fmt::format("tensor '{}' of '{}' has dtype {}; redblue computes with F64, F32, F16, BF16",
                                printable(e.name), path, printable(e.dtype)));
}

/// `names` are sorted.
[[noreturn]] void throw_no_tensor(const std::string& name, const std::vector<std::string>& names,
                                  const std::string& path) {
  constexpr std::size_t kMostNames = 40;
  std::vector<std::string> known;
  for (const std::string& other : names)
    if (known.size() < kMostNames) known.push_back(printable(other));
  const std::string more = names.size() > kMostNames ? fmt::format(", and {} more", names.size() - kMostNames) : "";
  throw InvalidProblem(fmt::format("'{}' has no tensor '{}'; it has {}{}", path, printable(name),
                                   known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), more));
}

constexpr bool kSwapped = std::endian::native == std::endian::big;  // files are little-endian

}  // namespace

Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& path,
                              std::shared_ptr<const void> keeps_alive) {
  Header header = read_header(bytes, bytes.size(), path);
  Safetensors file;
  file.path_ = path;
  file.owner_ = std::move(keeps_alive);
  file.metadata_ = std::move(header.metadata);
  for (SafetensorsEntry& e : header.entries) {
    const auto data = bytes.subspan(static_cast<std::size_t>(e.begin), static_cast<std::size_t>(e.end - e.begin));
    file.entries_.push_back({std::move(e), data});
  }
  for (std::size_t i = 0; i < file.entries_.size(); ++i) file.index_[file.entries_[i].name] = i;
  return file;
}

TensorPlace safetensors_place(const std::string& path, const std::string& name) {
  const InputFile file(path);
  const auto size = static_cast<std::size_t>(file.size());
  const std::size_t length = header_length(file.start(8), size, path);
  const Header header = read_header(file.start(8 + static_cast<index_t>(length)), size, path);
  const auto found = std::ranges::find(header.entries, name, &SafetensorsEntry::name);
  if (found == header.entries.end()) {
    std::vector<std::string> names;
    names.reserve(header.entries.size());
    for (const SafetensorsEntry& e : header.entries) names.push_back(e.name);
    std::ranges::sort(names);
    throw_no_tensor(name, names, path);
  }
  return {path, found->begin, known_dtype(*found, path), found->shape, c_order_strides(found->shape), kSwapped};
}

Safetensors read_safetensors(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  return parse_safetensors(file->bytes(), path, file);
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  names.reserve(index_.size());
  for (const auto& [name, position] : index_) names.push_back(name);
  return names;
}

const Safetensors::Entry& Safetensors::entry(const std::string& name) const {
  if (const auto it = index_.find(name); it != index_.end()) return entries_[it->second];
  throw_no_tensor(name, names(), path_);
}

Tensor Safetensors::tensor(const std::string& name) const {
  const Entry& e = entry(name);
  return Tensor({known_dtype(e, path_), e.shape, c_order_strides(e.shape), e.bytes.data(), kSwapped}, owner_);
}

std::optional<DType> safetensors_dtype(std::string_view name) {
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::boolean})
    if (name == safetensors_name_of(t)) return t;
  return std::nullopt;
}

}  // namespace redblue::file
