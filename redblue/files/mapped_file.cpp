#include "redblue/files/mapped_file.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "redblue/files/input_file.hpp"
#include "redblue/files/text.hpp"

namespace redblue::file {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const InputFile file(path_);
  if (file.size() == 0) return;  // mmap refuses a length of zero
  const auto size = static_cast<std::size_t>(file.size());
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (address == MAP_FAILED) throw_errno("map", path_, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace redblue::file
