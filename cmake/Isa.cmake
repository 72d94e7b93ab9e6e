# A room of redblue/ keeps what is for one family of processors in a folder: x86/. Where there is none for the processor
# that a build is for, the room's portable.cpp takes its place. A family is added here, with its processors and flags.
#
# A source whose name ends in _avx2, _avx512, _avx512_bf16 or _amx_bf16 is compiled for that instruction set and called
# only where is_available() (redblue/hardware/isa.hpp) says so. Such a file must keep everything but its entry points in anonymous
# namespaces: the linker could otherwise pick its copy of an inline function for code that must run on every processor.
# tests/check_isa_symbols.py checks that. These files are optimised in every build, because vector code is slow otherwise,
# but for builds with sanitizers, where that takes minutes a file. The compiler must not fuse a product and a sum that
# the source keeps apart: code must round alike everywhere. Vectors are written as such: what a compiler makes of two
# scalars side by side, such as the ends of a range, waits for the stores of both.
# (With -O2 in place of -O3 these files compile in three quarters of the time; on an AMD EPYC polynomials then take 5 to 8 %
# longer, one query 16 %.)
function(redblue_choose_isas sources)
  set(families x86)
  set(family)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(family x86)
  endif()
  set(kept ${${sources}})
  foreach(other IN LISTS families)
    if(NOT other STREQUAL family)
      list(FILTER kept EXCLUDE REGEX "/${other}/[^/]+$")
    endif()
  endforeach()
  foreach(source IN LISTS kept)
    if(family AND source MATCHES "^(.*)/${family}/[^/]+$")
      list(REMOVE_ITEM kept ${CMAKE_MATCH_1}/portable.cpp)
    endif()
  endforeach()
  set(${sources} ${kept} PARENT_SCOPE)

  set(optimised -O3)
  if(REDBLUE_SANITIZE)
    set(optimised)
  endif()
  set(avx2 ${optimised} -ffp-contract=off -fno-tree-slp-vectorize -mavx2 -mfma -mf16c -mbmi2)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)  # false alarms inside avx512fintrin.h, GCC bug 105593
  endif()
  set(avx512_bf16 ${avx512} -mavx512bf16)
  set(amx_bf16 ${avx512_bf16} -mamx-tile -mamx-bf16)
  foreach(isa avx2 avx512 avx512_bf16 amx_bf16)
    set(files ${kept})
    list(FILTER files INCLUDE REGEX "_${isa}\\.cpp$")
    set_property(SOURCE ${files} APPEND PROPERTY COMPILE_OPTIONS ${${isa}})
  endforeach()
endfunction()
