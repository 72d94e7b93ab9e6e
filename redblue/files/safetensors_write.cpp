#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "redblue/files/atomic_file.hpp"
#include "redblue/files/elements.hpp"
#include "redblue/files/safetensors.hpp"
#include "redblue/files/safetensors_dtype.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

namespace {

/// Widest first, then bf16 before f16, then by name, as the reference implementation sorts: each tensor then starts at
/// a multiple of its element, and the files are equal byte for byte.
std::vector<const NamedTensor*> in_file_order(const std::vector<NamedTensor>& tensors) {
  const auto place = [](const NamedTensor* t) {
    const DType type = t->tensor.dtype;
    const int rank = type == DType::f64    ? 0
                     : type == DType::f32  ? 1
                     : type == DType::bf16 ? 2
                     : type == DType::f16  ? 3
                                           : 4;
    return std::pair<int, std::string_view>(rank, t->name);
  };
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const auto& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return place(a) < place(b); });
  return order;
}

std::string header_of(const std::vector<const NamedTensor*>& order, const Safetensors::Metadata& metadata) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  index_t offset = 0;
  for (const auto* t : order) {
    if (t->name == "__metadata__")
      throw InvalidProblem("no tensor can be named '__metadata__': the format reserves it");
    if (header.contains(t->name)) throw InvalidProblem(fmt::format("two tensors are named '{}'", printable(t->name)));
    index_t end = 0;
    if (__builtin_add_overflow(offset, t->tensor.size_bytes(), &end))
      throw InvalidProblem(fmt::format("with tensor '{}' the file would exceed 2^63 bytes", printable(t->name)));
    header[t->name] = {
        {"dtype", safetensors_name_of(t->tensor.dtype)}, {"shape", t->tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    throw InvalidProblem("a name or metadata string of a safetensors file is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw InvalidProblem(fmt::format("{} tensors need a header of {} bytes; the format allows {}", order.size(),
                                     text.size(), kMaxHeaderBytes));
  return text;
}

}  // namespace

SafetensorsHeader safetensors_header(const std::vector<NamedTensor>& tensors, const Safetensors::Metadata& metadata) {
  const auto order = in_file_order(tensors);
  const std::string text = header_of(order, metadata);
  SafetensorsHeader header;
  for (std::size_t i = 0; i < 8; ++i) header.text += static_cast<char>(text.size() >> 8 * i & 0xff);
  header.text += text;
  header.begin.resize(tensors.size());
  auto at = static_cast<index_t>(header.text.size());
  for (const auto* t : order) {
    header.begin[static_cast<std::size_t>(t - tensors.data())] = at;
    at += t->tensor.size_bytes();
  }
  return header;
}

void write_safetensors(AtomicFile& out, const std::vector<NamedTensor>& tensors,
                       const Safetensors::Metadata& metadata) {
  for (const auto& t : tensors)
    check_writable(t.tensor, fmt::format("tensor '{}' of '{}'", printable(t.name), out.path()));
  out.write(safetensors_header(tensors, metadata).text);
  for (const auto* t : in_file_order(tensors)) write_elements(out, t->tensor);
}

index_t safetensors_file_size(const std::vector<NamedTensor>& tensors, const Safetensors::Metadata& metadata) {
  Words bytes = Words(8) + static_cast<index_t>(header_of(in_file_order(tensors), metadata).size());
  for (const auto& t : tensors) bytes += t.tensor.size_bytes();
  return bytes.to_index();
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const Safetensors::Metadata& metadata) {
  AtomicFile out(path);
  write_safetensors(out, tensors, metadata);
  out.commit();
}

}  // namespace redblue::file
