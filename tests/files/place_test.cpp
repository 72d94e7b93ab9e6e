#include "redblue/files/place.hpp"

#include <bit>

#include "redblue/files/npy.hpp"
#include "redblue/files/raw.hpp"
#include "redblue/files/safetensors.hpp"
#include "support.hpp"

namespace redblue::file {
namespace {

using Indices = std::vector<index_t>;

/// The elements at a place, row by row, as their bits. Reads the file at once, as a test may.
std::vector<std::uint64_t> bits_at(const TensorPlace& place) {
  const std::string text = read_text(place.path);
  FileTensor t{place.dtype, place.shape, place.strides, nullptr, place.swap_bytes};
  t.data = reinterpret_cast<const std::byte*>(text.data()) + place.offset;
  return bits_of(Tensor(t, nullptr));
}

std::string text_of_bytes(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Place, OfNpyIsWhereTheReaderFindsTheData) {
  const TemporaryDirectory dir;
  const auto data = noise(2 * 3 * 5 * 8);
  for (const DType type : kAllTypes)
    for (const Indices& shape : {Indices{}, {7}, {2, 3, 5}, {3, 0, 2}}) {
      write_npy(dir / "x.npy", c_order_tensor(type, shape, data.data()));
      const Tensor read = read_npy(dir / "x.npy");
      const TensorPlace place = npy_place(dir / "x.npy");
      EXPECT_EQ(place.dtype, type);
      EXPECT_EQ(place.shape, shape);
      EXPECT_EQ(place.strides, read.strides());
      EXPECT_EQ(place.offset % 64, 0);
      EXPECT_EQ(bits_at(place), bits_of(read));
      EXPECT_EQ(byte_range(place).end, static_cast<index_t>(read_text(dir / "x.npy").size()));
    }
}

TEST(Place, OfNpyKeepsColumnOrderAndByteOrder) {
  const TemporaryDirectory dir;
  std::string header = "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }";
  header.resize(117, ' ');
  header += '\n';
  write_text(dir / "x.npy", std::string("\x93NUMPY\1\0\x76\0", 10) + header + text_of_bytes(noise(24)));
  const TensorPlace place = npy_place(dir / "x.npy");
  EXPECT_EQ(place.offset, 128);
  EXPECT_EQ(place.strides, (Indices{1, 2}));
  EXPECT_EQ(place.swap_bytes, std::endian::native == std::endian::little);
  EXPECT_EQ(bits_at(place), bits_of(read_npy(dir / "x.npy")));
}

TEST(Place, OfSafetensorsIsWhereTheReaderFindsTheData) {
  const TemporaryDirectory dir;
  const auto data = noise(4 * 6 * 8);
  std::vector<NamedTensor> tensors;
  for (const DType type : kAllTypes)
    tensors.push_back({std::string(name_of(type)), c_order_tensor(type, {4, 6}, data.data())});
  write_safetensors(dir / "x.safetensors", tensors);
  const Safetensors file = read_safetensors(dir / "x.safetensors");
  for (const std::string& name : file.names()) {
    const TensorPlace place = safetensors_place(dir / "x.safetensors", name);
    EXPECT_EQ(name_of(place.dtype), name);
    EXPECT_EQ(place.offset, file.entry(name).begin);
    EXPECT_EQ(byte_range(place).end, file.entry(name).end);
    EXPECT_EQ(bits_at(place), bits_of(file.tensor(name)));
  }
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { safetensors_place(dir / "x.safetensors", "q"); }),
                  "no tensor 'q'; it has bf16, f16, f32, f64");
}

TEST(Place, RefusesWhatTheReadersRefuse) {
  const TemporaryDirectory dir;
  const auto data = noise(96);
  write_npy(dir / "x.npy", c_order_tensor(DType::f32, {4, 6}, data.data()));
  write_safetensors(dir / "x.safetensors", {{"q", c_order_tensor(DType::f32, {4, 6}, data.data())}});
  for (const std::string name : {"x.npy", "x.safetensors"}) {
    const std::string whole = read_text(dir / name);
    const auto place = [&] { name == "x.npy" ? npy_place(dir / name) : safetensors_place(dir / name, "q"); };
    const auto read = [&] { name == "x.npy" ? read_npy(dir / name), 0 : (read_safetensors(dir / name), 0); };
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{5}, std::size_t{9}, std::size_t{40}, whole.size() - 1}) {
      write_text(dir / name, whole.substr(0, length));
      EXPECT_EQ(message_of<IoError>(place), message_of<IoError>(read)) << name << " of " << length << " bytes";
    }
    write_text(dir / name, whole + "more");
    EXPECT_EQ(message_of<IoError>(place), message_of<IoError>(read));
  }
}

TEST(Place, RangeOfBytesFollowsStridesOfEitherSign) {
  TensorPlace place{"x", 100, DType::f32, {3, 5}, {10, 2}, false};
  EXPECT_EQ(byte_range(place).begin, 100);
  EXPECT_EQ(byte_range(place).end, 100 + (2 * 10 + 4 * 2 + 1) * 4);
  place.strides = {-10, 2};
  EXPECT_EQ(byte_range(place).begin, 100 - 80);
  EXPECT_EQ(byte_range(place).end, 100 + 4 * 8 + 4);
  place.shape = {3, 0};
  EXPECT_EQ(byte_range(place).begin, byte_range(place).end);
  place.shape = {4, 5};
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { byte_range(place); }), "lead before the file");
  place.strides = {index_t{1} << 61, 1};
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { byte_range(place); }), "overflows 63 bits");
  place.strides = {1};
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { byte_range(place); }), "1 strides for 2 dimensions");
  place = {"x", -4, DType::f32, {1}, {1}, false};
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { byte_range(place); }), "the offset is negative");
}

TEST(Place, MustLieInItsFile) {
  const TemporaryDirectory dir;
  write_text(dir / "x", std::string(100, 'x'));
  TensorPlace place{dir / "x", 4, DType::f64, {3, 4}, {4, 1}, false};
  require_in_file(place);
  place.offset = 5;
  EXPECT_CONTAINS(message_of<IoError>([&] { require_in_file(place); }), "ends at byte 101, and the file has 100 bytes");
  place.path = dir / "nowhere";
  EXPECT_CONTAINS(message_of<IoError>([&] { require_in_file(place); }), "No such file");
}

TEST(Raw, IsTheWholeFileOrBeginsAtAByte) {
  const TemporaryDirectory dir;
  const auto data = noise(4 * 6 * 4);
  write_text(dir / "x", "header" + text_of_bytes(data));
  write_text(dir / "y", text_of_bytes(data) + "more");
  write_text(dir / "z", text_of_bytes(data));
  const auto expected = bits_of(Tensor(c_order_tensor(DType::f32, {4, 6}, data.data()), nullptr));
  EXPECT_EQ(bits_of(read_raw({dir / "x", DType::f32, {4, 6}, {}, 6})), expected) << "not aligned: copied";
  EXPECT_EQ(bits_of(read_raw({dir / "y", DType::f32, {4, 6}, {}, 0})), expected);
  EXPECT_EQ(bits_of(read_raw({dir / "z", DType::f32, {4, 6}})), expected);
  EXPECT_EQ(bits_at(place_of({dir / "z", DType::f32, {4, 6}})), expected);
}

TEST(Raw, RefusesSizesThatDoNotAgreeWithTheFile) {
  const TemporaryDirectory dir;
  write_text(dir / "x", std::string(100, 'x'));
  const auto error = [&](Indices shape, std::optional<index_t> offset) {
    return message_of<IoError>([&] { place_of({dir / "x", DType::f32, std::move(shape), {}, offset}); });
  };
  EXPECT_CONTAINS(error({4, 6}, {}), "takes 96 bytes, and '" + (dir / "x") + "' has 100: give the byte");
  EXPECT_CONTAINS(error({4, 7}, {}), "takes 112 bytes, and '" + (dir / "x") + "' has 100: is it this shape");
  EXPECT_CONTAINS(error({4, 6}, 8), "takes 96 bytes from byte 8 on");
  EXPECT_CONTAINS(error({1}, index_t{1} << 62), "takes 4 bytes from byte");
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { place_of({dir / "x", DType::f32, {index_t{1} << 62, 2}, {}, 0}); }),
                  "overflows 63 bits");
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { place_of({dir / "x", DType::f32, {1}, {}, -1}); }),
                  "give 0 or more");
}

TEST(Raw, TakesStridesWithinTheFile) {
  const TemporaryDirectory dir;
  const auto data = noise(4 * 6 * 4);
  write_text(dir / "x", text_of_bytes(data));
  const FileTensor columns{DType::f32, {6, 4}, {1, 6}, data.data(), false};
  const RawTensor raw{dir / "x", DType::f32, {6, 4}, Indices{1, 6}, {}};
  EXPECT_EQ(bits_of(read_raw(raw)), bits_of(Tensor(columns, nullptr)));
  EXPECT_EQ(bits_of(read_raw({dir / "x", DType::f32, {2, 3}, Indices{6, 2}, 8})),
            bits_of(Tensor({DType::f32, {2, 3}, {6, 2}, data.data() + 8, false}, nullptr)));
  EXPECT_CONTAINS(message_of<IoError>([&] { place_of({dir / "x", DType::f32, {6, 4}, Indices{2, 6}, {}}); }),
                  "takes 116 bytes from byte 0 on");
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { place_of({dir / "x", DType::f32, {6, 4}, Indices{-1, 6}, {}}); }),
                  "strides [-1, 6]");
  EXPECT_CONTAINS(message_of<Unsupported>([&] { read_raw({dir / "x", DType::f32, {5, 3}, Indices{1, 6}, 2}); }),
                  "at a multiple of 4 bytes");
}

}  // namespace
}  // namespace redblue::file
