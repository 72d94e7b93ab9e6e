# How redblue itself is compiled. Nothing here reaches a consumer.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, ..." FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# A value of an enum, such as an operation, that a switch leaves out is an error: what a new one means is said in each.
add_compile_options(-Wall -Wextra -Wpedantic -Wconversion -Werror=switch)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # -Wshadow of g++ also complains where a constructor's parameter is named like the member it sets. -Wconversion of g++
  # leaves out signs, and so does clang's here: what compiles with one should compile with the other.
  add_compile_options(-Wshadow -Wreserved-identifier -Wno-sign-conversion)
  # std::stable_sort of libstdc++ 12 uses what libstdc++ 12 deprecates, and clang tells its user. g++ still checks ours.
  add_compile_options(-Wno-deprecated-declarations)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)  # false alarms inside std::string, GCC bug 105329
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ looks for memory to free from 128 MiB on, which takes a tenth of its time here. From 512 MiB on it takes up to
  # 1.6 GB in place of 1.3.
  add_compile_options(--param=ggc-min-heapsize=524288 --param=ggc-min-expand=100)
endif()
if(REDBLUE_WERROR)
  set(CMAKE_COMPILE_WARNING_AS_ERROR ON)
endif()

# The program and the tests take little time to run and much to compile. What takes time to run is in the library, which
# keeps its own level.
set(REDBLUE_OUTER_LEVEL $<$<CONFIG:Release>:-O1>)

if(REDBLUE_SANITIZE)
  add_compile_options(-fsanitize=${REDBLUE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${REDBLUE_SANITIZE})
  if(REDBLUE_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Tests take a fifth less time. What points into the stack of a function that has returned is left to warnings.
    add_compile_options(-fsanitize-address-use-after-return=never)
  endif()
endif()
