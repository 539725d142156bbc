! All calls from Fortran. The first word says what to do; process 0 alone has it by then.
module parts
  use, intrinsic :: iso_c_binding
  use bsp
  implicit none
  integer :: p, me

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what

    if (.not. holds) call bsp_abort(what)
  end subroutine

  subroutine spmd()
    integer, asynchronous :: all(100), got(100), value
    real(c_double) :: time
    integer :: i

    call bsp_begin(bsp_nprocs())
    p = bsp_nprocs()
    me = bsp_pid()
    time = bsp_time()
    call check(p <= 100 .and. me >= 0 .and. me < p .and. time >= 0, 'numbers')
    call bsp_push_reg(all, 4 * p)
    call bsp_push_reg(value, 4)
    call bsp_sync()
    value = me
    do i = 0, p - 1
      call bsp_put(i, me, all, 4 * me, 4)
      call bsp_get(i, value, 0, got(i + 1), 4)
    end do
    value = value + 100
    call bsp_sync()
    do i = 0, p - 1
      call check(all(i + 1) == i, 'bsp_put')
      call check(got(i + 1) == i + 100, 'bsp_get')
    end do
    call without_copies(all, got)
    call bsp_pop_reg(value)
    call bsp_pop_reg(all)
    if (me == 0) then
      call bsp_push_reg(got, 4)
    else
      call bsp_push_reg(bytes=0)
    end if
    call bsp_sync()
    if (me == 0) then
      call bsp_put(0, -7, got, 0, 4)
      call bsp_pop_reg(got)
    else
      call bsp_pop_reg()
    end if
    call bsp_sync()
    call check(me /= 0 .or. got(1) == -7, 'an area in process 0')
    call messages()
    call check(bsp_time() >= time, 'bsp_time')
    call bsp_end()
  end subroutine

  ! What the caller's arrays have is another's by the time that bsp_sync returns.
  subroutine without_copies(all, got)
    integer, intent(inout), asynchronous, contiguous :: all(:), got(:)
    integer :: next, before

    next = modulo(me + 1, p)
    before = modulo(me - 1, p)
    got(1:2) = [me + 1000, -1]
    all(1) = -1
    call bsp_hpput(next, got, all, 0, 4)
    call bsp_sync()
    call check(all(1) == before + 1000, 'bsp_hpput')
    got(2) = -1
    call bsp_hpget(next, all, 0, got(2), 4)
    call bsp_sync()
    call check(got(2) == me + 1000, 'bsp_hpget')
  end subroutine

  subroutine messages()
    integer :: bytes, count, status, tag, i
    integer, pointer :: its_tag
    real(c_double), pointer :: payload(:)
    real(c_double) :: room(3)
    type(c_ptr) :: at_tag, at_payload

    bytes = 4
    call bsp_set_tagsize(bytes)
    call check(bytes == 0, 'bsp_set_tagsize')
    call bsp_send(me, payload='no tag', bytes=6)
    call bsp_sync()
    call bsp_get_tag(status)
    call check(status == 6, 'bsp_get_tag without tags')
    do i = 0, p - 1
      call bsp_send(i, 10 * me, [1d0, 2d0, 1d0 * me], 24)
      call bsp_send(i, 10 * me + 1, bytes=0)
    end do
    call bsp_sync()
    call bsp_qsize(count, bytes)
    call check(count == 2 * p .and. bytes == 24 * p, 'bsp_qsize')
    call bsp_qsize(count)
    do i = 1, count
      call bsp_get_tag(status, tag)
      if (status == 0) then
        call check(modulo(tag, 10) == 1, 'a tag')
        call bsp_move(room=0)
      else if (modulo(tag, 20) == 0) then
        call bsp_move(room, 24)
        call check(all(room == [1d0, 2d0, tag / 10d0]), 'bsp_move')
      else
        call check(bsp_hpmove(at_tag, at_payload) == status, 'bsp_hpmove')
        call c_f_pointer(at_tag, its_tag)
        call c_f_pointer(at_payload, payload, [status / 8])
        call check(its_tag == tag .and. all(payload == [1d0, 2d0, tag / 10d0]), 'a payload')
      end if
    end do
    call bsp_get_tag(status, tag)
    call check(status == -1, 'the queue is empty')
  end subroutine
end module

program fortran
  use bsp
  use parts, only: spmd
  implicit none
  character(20) :: how

  call bsp_init(spmd)
  call get_command_argument(1, how)
  if (how == 'abort') then
    call bsp_begin(1)
    call bsp_abort('as it should')
  end if
  call spmd()
end program
