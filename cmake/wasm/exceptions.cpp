#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <typeinfo>

/// Exceptions: what libc++abi of Debian's packages for WebAssembly leaves out, because it is built without them. The
/// names are those of the Itanium C++ ABI. Code throws with an instruction of WebAssembly, and asks
/// _Unwind_CallPersonality in each landing pad which of its handlers, if any, takes the exception. There is one thread,
/// no exception specification, and no exception of another language.
namespace __cxxabiv1 {

/// What libc++abi makes of every std::type_info: its fifth virtual function says whether a handler of this type takes
/// what was thrown, and moves `object` to the base that the handler names.
class __shim_type_info : public std::type_info {
 public:
  virtual void noop1() const;
  virtual void noop2() const;
  virtual bool can_catch(const __shim_type_info* thrown, void*& object) const = 0;
};

}  // namespace __cxxabiv1

namespace {

using Type = __cxxabiv1::__shim_type_info;

/// Stands in memory before the object that was thrown.
struct alignas(std::max_align_t) Exception {
  const Type* type;
  void* (*destroy)(void*);
  std::size_t references;  ///< by the throw, and by each std::exception_ptr
  int handlers;            ///< that are at it now
  void* caught;            ///< the object, as the handler that was found last sees it
  Exception* below;        ///< whose handler this one's runs in

  void* object() { return this + 1; }
  static Exception& of(void* object) { return *(static_cast<Exception*>(object) - 1); }
};

Exception* handled = nullptr;  ///< the innermost

[[noreturn]] void raise(Exception& e) { __builtin_wasm_throw(0, &e); }

/// Numbers of seven bits a byte, as DWARF writes them.
std::uint32_t read_unsigned(const std::uint8_t*& at) {
  std::uint32_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint32_t byte = *at++;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}
std::int32_t read_signed(const std::uint8_t*& at) {
  std::uint32_t value = 0;
  for (unsigned shift = 0;;) {
    const std::uint32_t byte = *at++;
    value |= (byte & 0x7f) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    if (shift < 32 && (byte & 0x40) != 0) value |= ~0u << shift;
    return static_cast<std::int32_t>(value);
  }
}

/// The number of the first handler of a landing pad that takes e, 0 where none does. `table` is what the compiler wrote
/// for the function: pairs of landing pad and first action, then actions (handler, distance to the next action), then
/// the handlers' types, from the end backwards.
std::uint32_t handler_of(Exception& e, const std::uint8_t* table, std::uint32_t pad) {
  constexpr std::uint8_t kOmitted = 0xff, kPointers = 0;
  if (*table++ != kOmitted) std::abort();  // no start of landing pads: they have numbers
  const std::uint8_t* types = nullptr;
  if (const std::uint8_t encoding = *table++; encoding != kOmitted) {
    if (encoding != kPointers) std::abort();  // code at no fixed address (-fPIC)
    const std::uint32_t distance = read_unsigned(table);
    types = table + distance;
  }
  ++table;  // how pairs are encoded: as numbers of seven bits
  const std::uint32_t size = read_unsigned(table);
  const std::uint8_t* const actions = table + size;
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i <= pad; ++i) {
    read_unsigned(table);
    first = read_unsigned(table);
  }
  if (first == 0) return 0;
  for (const std::uint8_t* action = actions + first - 1;;) {
    const std::int32_t handler = read_signed(action);
    if (handler > 0) {
      const Type* const type = reinterpret_cast<const Type* const*>(types)[-handler];
      e.caught = e.object();
      if (type == nullptr || type->can_catch(e.type, e.caught)) return static_cast<std::uint32_t>(handler);
    }
    const std::uint8_t* next = action;
    const std::int32_t distance = read_signed(next);
    if (distance == 0) return 0;
    action += distance;
  }
}

}  // namespace

extern "C" {

struct LandingPad {
  std::uint32_t number;
  const std::uint8_t* table;
  std::uint32_t handler;
} __wasm_lpad_context;

int _Unwind_CallPersonality(void* exception) {
  LandingPad& pad = __wasm_lpad_context;
  pad.handler = handler_of(*static_cast<Exception*>(exception), pad.table, pad.number);
  return 0;
}

void* __cxa_allocate_exception(std::size_t size) {
  void* const memory = std::malloc(sizeof(Exception) + size);
  if (memory == nullptr) std::abort();
  return static_cast<Exception*>(memory) + 1;
}
void __cxa_free_exception(void* object) { std::free(&Exception::of(object)); }

void __cxa_throw(void* object, const std::type_info* type, void* (*destroy)(void*)) {
  Exception& e = Exception::of(object);
  e = {static_cast<const Type*>(type), destroy, 1, 0, object, nullptr};
  raise(e);
}

void __cxa_increment_exception_refcount(void* object) {
  if (object != nullptr) ++Exception::of(object).references;
}
void __cxa_decrement_exception_refcount(void* object) {
  if (object == nullptr || --Exception::of(object).references > 0) return;
  if (Exception::of(object).destroy != nullptr) Exception::of(object).destroy(object);
  __cxa_free_exception(object);
}

void* __cxa_get_exception_ptr(void* exception) { return static_cast<Exception*>(exception)->caught; }
void* __cxa_begin_catch(void* exception) {
  Exception& e = *static_cast<Exception*>(exception);
  if (e.handlers++ == 0) {
    e.below = handled;
    handled = &e;
  }
  return e.caught;
}
void __cxa_end_catch() {
  Exception& e = *handled;
  if (--e.handlers > 0) return;
  handled = e.below;
  __cxa_decrement_exception_refcount(e.object());
}
void __cxa_rethrow() {
  if (handled == nullptr) std::terminate();
  __cxa_increment_exception_refcount(handled->object());  // __cxa_end_catch, on the way out, drops one
  raise(*handled);
}

void* __cxa_current_primary_exception() {
  if (handled == nullptr) return nullptr;
  __cxa_increment_exception_refcount(handled->object());
  return handled->object();
}
void __cxa_rethrow_primary_exception(void* object) {
  if (object == nullptr) return;
  __cxa_increment_exception_refcount(object);
  raise(Exception::of(object));
}
unsigned __cxa_uncaught_exceptions() { return 0; }
}
