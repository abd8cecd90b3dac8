# The library `multilayer` of csrc/ without its binding. The extension module and csrc/tests are linked with it.
#
# Floating-point code is compiled as written: a·b + c is not contracted, sums are not reordered, and -march=native is not
# used. A wheel therefore runs on any processor of its architecture, and the random stream has the same bits everywhere.
# Code that benefits from wider registers (runtime/microbenchmarks.cpp, kernels/kernels.cpp) is compiled once per
# instruction set and selected at run time.
find_package(Threads REQUIRED)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)

if(MSVC)
  message(FATAL_ERROR "the kernels need GCC or Clang: on Windows, use clang (CXX=clang++)")
endif()
set(OPTIMIZE -O3 CACHE STRING "Optimisation level of the compiler; results do not depend on it")
add_compile_options(${OPTIMIZE} -Wall -Wextra -ffp-contract=off)

# The instruction sets of this architecture, narrowest first, and their additional compiler flags.
set(isas baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT CMAKE_OSX_ARCHITECTURES MATCHES "arm64")
  list(APPEND isas avx2 avx512)
  set(flags_avx2 -mavx2 -mfma)
  set(flags_avx512 -mavx512f -mfma -mprefer-vector-width=512)
endif()
list(TRANSFORM isas REPLACE "(.+)" "ISA(\\1)" OUTPUT_VARIABLE isa_list)
list(JOIN isa_list " " isa_list)

set(here "${CMAKE_CURRENT_LIST_DIR}")
set(sources fused/core fused/forward_backward fused/memory_plan fused/parameter_updates kernels/dispatch predict/predict
    reference/core runtime/aligned_floats runtime/denormals runtime/machine runtime/random runtime/thread_pool)
list(TRANSFORM sources REPLACE "(.+)" "${here}/\\1.cpp")
add_library(multilayer STATIC ${sources})
target_include_directories(multilayer PUBLIC "${here}")
target_compile_definitions(multilayer PUBLIC "MULTILAYER_ISAS=${isa_list}")
target_link_libraries(multilayer PUBLIC Threads::Threads)
set(core multilayer)
foreach(isa IN LISTS isas)
  foreach(source runtime/microbenchmarks kernels/kernels)
    cmake_path(GET source FILENAME name)
    set(target ${name}_${isa})
    add_library(${target} OBJECT "${here}/${source}.cpp")
    target_include_directories(${target} PRIVATE "${here}")
    target_compile_options(${target} PRIVATE ${flags_${isa}})
    target_compile_definitions(${target} PRIVATE MULTILAYER_ISA=${isa} "MULTILAYER_ISAS=${isa_list}")
    target_sources(multilayer PRIVATE $<TARGET_OBJECTS:${target}>)
    list(APPEND core ${target})
  endforeach()
  # These flags let the compiler vectorise selections and square roots. They do not change results.
  target_compile_options(kernels_${isa} PRIVATE -fno-math-errno -fno-trapping-math)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The intrinsics header of GCC causes these warnings (GCC bug 105593).
    target_compile_options(kernels_${isa} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
endforeach()
foreach(target IN LISTS core)
  target_compile_options(${target} PRIVATE -Wconversion -Wshadow)
endforeach()
