# WebAssembly with what Debian has: clang 19 and its libc++ for wasm32-wasi, wasi-libc. That libc++ is built without
# threads, files and exceptions; what redblue needs of those is in this folder.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # the first trial program knows none of the flags below
