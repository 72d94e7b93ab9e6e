#include "files/npz.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <minizip/unzip.h>
#include <minizip/zip.h>

#include <algorithm>
#include <exception>
#include <map>
#include <new>
#include <span>

#include "redblue/files/mapped_file.hpp"
#include "redblue/files/npy.hpp"

namespace redblue::cli {

namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::size_t kMostAtOnce = 1 << 30;  // minizip counts in 32 bits

class Npz : public Archive {
 public:
  explicit Npz(const std::string& path) : path_(path), zip_(nullptr, unzClose) {
    const file::MappedFile readable_file(path);  // throws where it is none
    zip_.reset(unzOpen64(path.c_str()));
    if (!zip_) throw bad("it has no list of members, or an empty one: is the file whole?");
    int at = unzGoToFirstFile(zip_.get());
    for (; at == UNZ_OK; at = unzGoToNextFile(zip_.get())) {
      char name_here[1024];
      unz_file_info64 info;
      Member member{};
      if (unzGetCurrentFileInfo64(zip_.get(), &info, name_here, sizeof name_here, nullptr, 0, nullptr, 0) != UNZ_OK ||
          unzGetFilePos64(zip_.get(), &member.position) != UNZ_OK)
        break;
      member.bytes = info.uncompressed_size;
      if (info.size_filename > sizeof name_here)
        throw bad(fmt::format("a name in it has {} bytes; {} are read", info.size_filename, sizeof name_here));
      const std::string name(name_here, info.size_filename);
      if (!name.ends_with(kSuffix)) throw bad(fmt::format("it holds '{}', which is no .npy", readable(name)));
      if ((info.flag & 1) != 0) throw bad(fmt::format("'{}' is encrypted", readable(name)));
      if (!members_.emplace(name.substr(0, name.size() - kSuffix.size()), member).second)
        throw bad(fmt::format("it holds '{}' twice", readable(name)));
    }
    if (at != UNZ_END_OF_LIST_OF_FILE) throw bad("its list of members is damaged");
  }

  std::string_view format() const override { return "npz"; }
  bool contains(const std::string& name) const override { return members_.contains(name); }

  std::vector<Entry> entries() const override {
    constexpr std::size_t kMostHeader = 1 << 20;  // numpy's headers take hundreds of bytes
    std::vector<Entry> list;
    for (const auto& [name, member] : members_) {
      const Bytes begin = read(name, kMostHeader);
      file::NpyDescription d = file::describe_npy({begin.data.get(), begin.size}, where(name));
      list.push_back({name, std::move(d.dtype), std::move(d.shape), d.type});
    }
    return list;
  }

  file::Tensor tensor(const std::string& name) const override {
    const Bytes bytes = read_known(name);
    return {file::parse_npy({bytes.data.get(), bytes.size}, where(name)), bytes.data};
  }
  file::WholeNumbers integers(const std::string& name) const {
    const Bytes bytes = read_known(name);
    return file::parse_npy_integers({bytes.data.get(), bytes.size}, where(name));
  }
  std::string text(const std::string& name) const {
    const Bytes bytes = read_known(name);
    return file::parse_npy_text({bytes.data.get(), bytes.size}, where(name));
  }
  file::NpyDescription describe(const std::string& name) const {
    const Bytes bytes = read_known(name);
    return file::describe_npy({bytes.data.get(), bytes.size}, where(name));
  }

 private:
  struct Member {
    unz64_file_pos position;
    std::size_t bytes;  ///< unpacked
  };
  struct Bytes {
    std::shared_ptr<std::byte[]> data;
    std::size_t size;
  };

  IoError bad(const std::string& what) const {
    return {fmt::format("cannot read '{}' as .npz: {}", path_, what), path_};
  }
  std::string where(const std::string& name) const { return path_ + ":" + name; }
  Bytes read_known(const std::string& name) const {
    if (!contains(name)) {
      std::vector<std::string> names;
      names.reserve(members_.size());
      for (const auto& [known, member] : members_) names.push_back(readable(known));
      throw InvalidProblem(fmt::format("'{}' has no tensor '{}'; it has: {}", path_, name, fmt::join(names, ", ")));
    }
    return read(name, SIZE_MAX);
  }

  /// The first `most` bytes of a member, unpacked.
  Bytes read(const std::string& name, std::size_t most) const {
    Member member = members_.at(name);
    const auto bad_member = [&](std::string_view what) { return bad(fmt::format("{} {}", readable(name), what)); };
    if (unzGoToFilePos64(zip_.get(), &member.position) != UNZ_OK || unzOpenCurrentFile(zip_.get()) != UNZ_OK)
      throw bad_member("is packed in a way that is not known here, or damaged");
    Bytes bytes{nullptr, std::min(member.bytes, most)};
    try {
      bytes.data.reset(new std::byte[bytes.size]);
    } catch (const std::bad_alloc&) {
      throw bad_member(fmt::format("takes {} bytes, for which there is no memory", bytes.size));
    }
    for (std::size_t done = 0; done < bytes.size;) {
      const auto wanted = static_cast<unsigned>(std::min(bytes.size - done, kMostAtOnce));
      const int got = unzReadCurrentFile(zip_.get(), bytes.data.get() + done, wanted);
      if (got <= 0) throw bad_member(fmt::format("is damaged after {} of {} bytes", done, bytes.size));
      done += static_cast<std::size_t>(got);
    }
    if (unzCloseCurrentFile(zip_.get()) == UNZ_CRCERROR && bytes.size == member.bytes)
      throw bad_member("is damaged: its checksum is wrong");
    return bytes;
  }

  std::string path_;
  std::unique_ptr<void, int (*)(unzFile)> zip_;
  std::map<std::string, Member> members_;
};

/// A file that is written, for minizip, which goes back in it to fill in checksums.
struct WrittenFile {
  file::AtomicFile& file;
  index_t at = 0;
  std::exception_ptr failure{};  ///< minizip is C, through which no exception goes

  /// What lies before the end is written over.
  void write(std::span<const std::byte> bytes) {
    const auto before = static_cast<std::size_t>(file.bytes_written() - at);
    const auto over = bytes.first(std::min(before, bytes.size()));
    if (!over.empty()) file.rewrite(at, over);
    if (over.size() < bytes.size()) file.write(bytes.subspan(over.size()));
    at += std::ssize(bytes);
  }

  zlib_filefunc64_def functions() {
    zlib_filefunc64_def f{};
    f.zopen64_file = [](void* file, const void*, int) { return file; };
    f.zread_file = [](void*, void*, void*, uLong) { return uLong{0}; };
    f.zwrite_file = [](void*, void* file, const void* data, uLong size) {
      WrittenFile& w = *static_cast<WrittenFile*>(file);
      try {
        w.write({static_cast<const std::byte*>(data), size});
      } catch (...) {
        w.failure = std::current_exception();
        return uLong{0};
      }
      return size;
    };
    f.ztell64_file = [](void*, void* file) { return static_cast<ZPOS64_T>(static_cast<WrittenFile*>(file)->at); };
    f.zseek64_file = [](void*, void* file, ZPOS64_T offset, int origin) {
      WrittenFile& w = *static_cast<WrittenFile*>(file);
      const index_t from = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                           : origin == ZLIB_FILEFUNC_SEEK_CUR ? w.at
                                                              : w.file.bytes_written();
      w.at = from + static_cast<index_t>(offset);
      return 0L;
    };
    f.zclose_file = [](void*, void*) { return 0; };
    f.zerror_file = [](void*, void*) { return 0; };
    f.opaque = this;
    return f;
  }
};

}  // namespace

std::unique_ptr<Archive> open_npz(const std::string& path) { return std::make_unique<Npz>(path); }

SparseMatrix read_sparse_npz(const std::string& path) {
  const Npz file(path);
  const std::string format = file.contains("format") ? file.text("format") : "";
  if (!format.empty() && format != "csr" && format != "bsr")
    throw InvalidProblem(fmt::format(
        "it is a sparse matrix of format '{}': csr and bsr are read; convert it with .tocsr()", readable(format)));
  for (const char* const name : {"format", "shape", "indptr", "indices"})
    if (!file.contains(name))
      throw InvalidProblem(
          fmt::format("it has no array '{}': give what scipy.sparse.save_npz writes of a csr or bsr matrix", name));
  const auto list = [&](const char* name) {
    file::WholeNumbers numbers = file.integers(name);
    if (numbers.shape.size() != 1)
      throw InvalidProblem(
          fmt::format("its array '{}' is [{}]: it has one dimension", name, fmt::join(numbers.shape, ", ")));
    return std::move(numbers.values);
  };
  SparseMatrix m{format, list("shape"), list("indptr"), list("indices")};
  if (m.shape.size() != 2)
    throw InvalidProblem(fmt::format("its shape is ({}): a pattern is queries x keys", fmt::join(m.shape, ", ")));
  const bool bsr = m.format == "bsr";
  if (!bsr && !file.contains("data")) return m;  // values do not matter
  const std::vector<index_t> data = file.describe("data").shape;
  if (bsr && (data.size() != 3 || data[1] < 1 || data[2] < 1))
    throw InvalidProblem(
        fmt::format("data of a bsr matrix is blocks x rows x columns, not ({})", fmt::join(data, ", ")));
  if (data.empty() || data[0] != std::ssize(m.indices))
    throw InvalidProblem(fmt::format("its data is ({}), and it has {} indices: there is one {} for each index",
                                     fmt::join(data, ", "), m.indices.size(), bsr ? "block" : "value"));
  if (bsr) m.block = {data[1], data[2]};
  return m;
}

void write_npz(file::AtomicFile& out, const std::vector<file::NamedTensor>& tensors) {
  WrittenFile written{out};
  zlib_filefunc64_def functions = written.functions();
  const auto close = [](zipFile zip) { return zipClose(zip, nullptr); };
  std::unique_ptr<void, int (*)(zipFile)> zip(
      zipOpen2_64(out.path().c_str(), APPEND_STATUS_CREATE, nullptr, &functions), close);
  bool done = zip != nullptr;
  const auto write = [&](std::string_view bytes) {
    for (; done && !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMostAtOnce))) {
      const auto size = static_cast<unsigned>(std::min(bytes.size(), kMostAtOnce));
      done = zipWriteInFileInZip(zip.get(), bytes.data(), size) == ZIP_OK;
    }
  };
  zip_fileinfo info{};
  info.dosDate = 1 << 5 | 1;  // 1 January 1980: the same tensors make the same file at any time
  for (const auto& [name, tensor] : tensors) {
    if (tensor.strides != file::c_order_strides(tensor.shape) || tensor.swap_bytes)
      throw InvalidProblem(fmt::format("{} does not lie row by row in this machine's byte order", readable(name)));
    constexpr int kStored = 0, kZip64 = 1, kRaw = 0;
    constexpr uLong kUtf8 = 1 << 11;
    const std::string member = name + std::string(kSuffix), header = file::npy_header(tensor);
    done = done && zipOpenNewFileInZip4_64(zip.get(), member.c_str(), &info, nullptr, 0, nullptr, 0, nullptr, kStored,
                                           0, kRaw, -MAX_WBITS, DEF_MEM_LEVEL, Z_DEFAULT_STRATEGY, nullptr, 0, 0, kUtf8,
                                           kZip64) == ZIP_OK;
    write(header);
    write({reinterpret_cast<const char*>(tensor.data), static_cast<std::size_t>(tensor.size_bytes())});
    done = done && zipCloseFileInZip(zip.get()) == ZIP_OK;
  }
  done = close(zip.release()) == ZIP_OK && done;
  if (written.failure) std::rethrow_exception(written.failure);
  if (!done) throw IoError(fmt::format("cannot make '{}' as .npz", out.path()), out.path());
}

index_t npz_file_size(const std::vector<file::NamedTensor>& tensors) {
  constexpr index_t kEntry = 512;  // of the archive, for each member and at its end
  index_t bytes = kEntry;
  for (const auto& [name, tensor] : tensors)
    bytes += file::npy_file_size(tensor) + kEntry + 2 * static_cast<index_t>(name.size());
  return bytes;
}

}  // namespace redblue::cli
