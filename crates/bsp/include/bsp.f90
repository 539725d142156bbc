! BSPlib over Portolan, for Fortran 2018: the calls of bsp.h, whose comments say what each
! does. Compile this file along with the program:
!
!   gfortran "$(pkg-config --variable=includedir bsp)/bsp.f90" sum.f90 $(pkg-config --libs bsp)
!
! SPDX-License-Identifier: MIT OR Apache-2.0
!
! Memory.    Registered areas, sources of bsp_hpput and what bsp_get and bsp_hpget write are
!   read and written until bsp_sync returns. Declare them asynchronous: the compiler then
!   neither keeps their values in registers nor passes a copy, as it would of an array that
!   is not contiguous. Assumed-shape arrays are declared contiguous, too.
! Sizes.     Bytes, and integers of C's int. storage_size(x) / 8 is that of an element.
! Scalars.   gfortran takes them for areas, sources, tags and payloads. For other compilers
!   these are arrays, by the standard: use arrays of one element.
! Optional.  Without an area bsp_push_reg registers NULL, for a process that takes no part.
!   Tags may be left out where they have no bytes.
module bsp
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_funloc, c_funptr, c_int, &
    c_null_char, c_null_ptr, c_ptr
  implicit none
  private
  public :: bsp_init, bsp_begin, bsp_end, bsp_abort, bsp_nprocs, bsp_pid, bsp_time, bsp_sync
  public :: bsp_push_reg, bsp_pop_reg, bsp_put, bsp_get, bsp_hpput, bsp_hpget
  public :: bsp_set_tagsize, bsp_send, bsp_qsize, bsp_get_tag, bsp_move, bsp_hpmove

  abstract interface
    subroutine bsp_spmd()
    end subroutine
  end interface

  interface
    subroutine init_in_c(spmd, argc, argv) bind(c, name='bsp_init')
      import :: c_funptr, c_int, c_ptr
      type(c_funptr), value :: spmd
      integer(c_int), value :: argc
      type(c_ptr), value :: argv
    end subroutine

    subroutine abort_in_c(text) bind(c, name='bsp_abort_text')
      import :: c_char
      character(kind=c_char), intent(in) :: text(*)
    end subroutine

    subroutine bsp_begin(processes) bind(c)
      import :: c_int
      integer(c_int), value :: processes
    end subroutine

    subroutine bsp_end() bind(c)
    end subroutine

    function bsp_nprocs() bind(c)
      import :: c_int
      integer(c_int) :: bsp_nprocs
    end function

    function bsp_pid() bind(c)
      import :: c_int
      integer(c_int) :: bsp_pid
    end function

    function bsp_time() bind(c)
      import :: c_double
      real(c_double) :: bsp_time
    end function

    subroutine bsp_sync() bind(c)
    end subroutine

    subroutine bsp_push_reg(area, bytes) bind(c)
      import :: c_int
      type(*), dimension(*), asynchronous, optional :: area
      !gcc$ attributes no_arg_check :: area
      integer(c_int), value :: bytes
    end subroutine

    subroutine bsp_pop_reg(area) bind(c)
      type(*), dimension(*), asynchronous, optional :: area
      !gcc$ attributes no_arg_check :: area
    end subroutine

    subroutine bsp_put(pid, source, area, offset, bytes) bind(c)
      import :: c_int
      integer(c_int), value :: pid, offset, bytes
      type(*), dimension(*), intent(in) :: source
      !gcc$ attributes no_arg_check :: source
      type(*), dimension(*), asynchronous :: area
      !gcc$ attributes no_arg_check :: area
    end subroutine

    subroutine bsp_hpput(pid, source, area, offset, bytes) bind(c)
      import :: c_int
      integer(c_int), value :: pid, offset, bytes
      type(*), dimension(*), asynchronous, intent(in) :: source
      !gcc$ attributes no_arg_check :: source
      type(*), dimension(*), asynchronous :: area
      !gcc$ attributes no_arg_check :: area
    end subroutine

    subroutine bsp_get(pid, area, offset, into, bytes) bind(c)
      import :: c_int
      integer(c_int), value :: pid, offset, bytes
      type(*), dimension(*), asynchronous :: area, into
      !gcc$ attributes no_arg_check :: area, into
    end subroutine

    subroutine bsp_hpget(pid, area, offset, into, bytes) bind(c)
      import :: c_int
      integer(c_int), value :: pid, offset, bytes
      type(*), dimension(*), asynchronous :: area, into
      !gcc$ attributes no_arg_check :: area, into
    end subroutine

    subroutine bsp_set_tagsize(bytes) bind(c)
      import :: c_int
      integer(c_int), intent(inout) :: bytes
    end subroutine

    subroutine bsp_send(pid, tag, payload, bytes) bind(c)
      import :: c_int
      integer(c_int), value :: pid, bytes
      type(*), dimension(*), intent(in), optional :: tag, payload
      !gcc$ attributes no_arg_check :: tag, payload
    end subroutine

    subroutine bsp_qsize(messages, bytes) bind(c)
      import :: c_int
      integer(c_int), intent(out) :: messages
      integer(c_int), intent(out), optional :: bytes
    end subroutine

    subroutine bsp_get_tag(status, tag) bind(c)
      import :: c_int
      integer(c_int), intent(out) :: status
      type(*), dimension(*), optional :: tag
      !gcc$ attributes no_arg_check :: tag
    end subroutine

    subroutine bsp_move(payload, room) bind(c)
      import :: c_int
      type(*), dimension(*), optional :: payload
      !gcc$ attributes no_arg_check :: payload
      integer(c_int), value :: room
    end subroutine

    ! c_f_pointer makes variables of what it stores.
    function bsp_hpmove(tag, payload) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), intent(out) :: tag, payload
      integer(c_int) :: bsp_hpmove
    end function
  end interface

contains

  ! Fortran has its own means for the program's arguments.
  subroutine bsp_init(spmd)
    procedure(bsp_spmd) :: spmd

    call init_in_c(c_funloc(spmd), 0_c_int, c_null_ptr)
  end subroutine

  subroutine bsp_abort(text)
    character(*), intent(in) :: text

    call abort_in_c(trim(text)//c_null_char)
  end subroutine
end module
