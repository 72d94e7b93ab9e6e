#include "files/open_archive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "files/npz.hpp"

namespace redblue::cli {

namespace {

class SafetensorsArchive : public Archive {
 public:
  explicit SafetensorsArchive(const std::string& path) : file_(file::read_safetensors(path)) {}
  std::string_view format() const override { return "safetensors"; }
  std::vector<Entry> entries() const override {
    std::vector<Entry> list;
    for (const auto& e : file_.entries()) list.push_back({e.name, e.dtype, e.shape, file::safetensors_dtype(e.dtype)});
    return list;
  }
  bool contains(const std::string& name) const override { return file_.contains(name); }
  file::Tensor tensor(const std::string& name) const override { return file_.tensor(name); }

 private:
  file::Safetensors file_;
};

}  // namespace

std::unique_ptr<Archive> open_archive(const std::string& path) {
  constexpr std::string_view kZip("PK\3\4"), kEmptyZip("PK\5\6");
  if (begins_with(path, kZip) || begins_with(path, kEmptyZip) || is_npz(path)) return open_npz(path);
  return std::make_unique<SafetensorsArchive>(path);
}

bool begins_with(const std::string& path, std::string_view text) {
  std::string begin(text.size(), '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == text;
}

bool has_extension(const std::string& path, std::string_view extension) {
  return path.size() >= extension.size() &&
         std::equal(extension.rbegin(), extension.rend(), path.rbegin(),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}
bool is_npz(const std::string& path) { return has_extension(path, ".npz"); }

void require_known_extension(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 = 0
  if (name.find('.', 1) == std::string::npos || is_npz(path) || has_extension(path, ".safetensors") ||
      has_extension(path, ".npy"))
    return;
  throw InvalidProblem(
      fmt::format("--output {}: it writes safetensors or .npz: give a name that ends like that", path));
}

void write_archive(file::AtomicFile& out, const std::vector<file::NamedTensor>& tensors) {
  if (is_npz(out.path()))
    write_npz(out, tensors);
  else
    file::write_safetensors(out, tensors);
}

index_t archive_size(const std::string& path, const std::vector<file::NamedTensor>& tensors) {
  return is_npz(path) ? npz_file_size(tensors) : file::safetensors_file_size(tensors);
}

}  // namespace redblue::cli
