# redblue_fmt: fmt as redblue uses it. It is compiled into the library, so that users of redblue need no libfmt, and once,
# in redblue/language/fmt.cpp: header-only, every file would compile all of fmt, which takes 4 s each. The namespace is redblue's own:
# a program may link redblue and another fmt.
redblue_find_package(fmt 9)
add_library(redblue_fmt INTERFACE)
if(fmt_VERSION VERSION_LESS 10)
  target_include_directories(redblue_fmt INTERFACE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(redblue_fmt INTERFACE
    "FMT_BEGIN_NAMESPACE=namespace fmt { inline namespace redblue_v9 {" "FMT_END_NAMESPACE=} }")
else()  # what redblue/language/fmt.cpp must hold depends on the version, and this one has not been tried
  target_link_libraries(redblue_fmt INTERFACE fmt::fmt-header-only)
endif()
