#pragma once
#include <fmt/format.h>

#include <exception>
#include <new>

#include "redblue.h"
#include "redblue/language/error.hpp"
#include "redblue/ranks/transport.hpp"

/// What every function of the C interface does: an exception becomes a status and a message.
namespace redblue::c_api {

/// Something is wrong with the call itself.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// Keeps the message for redblue_last_error.
redblue_status fail(redblue_status status, const char* message) noexcept;

/// Runs f; an exception becomes a status.
template <class F>
redblue_status guarded(const F& f) noexcept {
  try {
    f();
    return REDBLUE_OK;
  } catch (const InvalidProblem& e) {
    return fail(REDBLUE_INVALID_ARGUMENT, e.what());
  } catch (const InvalidArgument& e) {
    return fail(REDBLUE_INVALID_ARGUMENT, e.what());
  } catch (const IoError& e) {  // the only file is the one that hardware_file names
    return fail(REDBLUE_INVALID_ARGUMENT, e.what());
  } catch (const Unsupported& e) {
    return fail(REDBLUE_UNSUPPORTED, e.what());
  } catch (const CapacityError& e) {
    return fail(REDBLUE_FAST_MEMORY_TOO_SMALL, e.what());
  } catch (const MemoryError& e) {
    return fail(REDBLUE_NOT_ENOUGH_MEMORY, e.what());
  } catch (const ranks::RankError& e) {
    return fail(REDBLUE_RANK_FAILED, e.what());
  } catch (const std::bad_alloc&) {
    return fail(REDBLUE_NOT_ENOUGH_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return fail(REDBLUE_INTERNAL_ERROR, e.what());
  } catch (...) {
    return fail(REDBLUE_INTERNAL_ERROR, "an exception that is no std::exception");
  }
}

template <class T>
void require_pointer(const T* pointer, const char* what) {
  if (pointer == nullptr) throw InvalidArgument(fmt::format("{} is NULL", what));
}

}  // namespace redblue::c_api
