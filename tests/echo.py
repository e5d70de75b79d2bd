"""echo.py PROGRAM MODEL FOLDER - the terminal of `beryl run` while kernels compile, which its compiler here never ends.

What is typed is not shown but kept, and the echo is back however the program ends. Prints what is wrong; nothing: all is well.
"""
import fcntl, os, pty, select, signal, sys, termios, time

program, model, folder = sys.argv[1:]
compiler = folder + '/hangs'
os.makedirs(compiler, exist_ok=True)
with open(compiler + '/cc', 'w') as file:
    file.write('#!/bin/sh\nexec /bin/sleep 45\n')
os.chmod(compiler + '/cc', 0o755)


def echoes(terminal):
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def read(terminal, until, seconds):
    """What is shown, until it holds the text or the time is over."""
    shown, end = b'', time.monotonic() + seconds
    while until not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                break
    return shown


def attempt(number):
    terminal, own = pty.openpty()
    before = echoes(own)
    child = os.fork()
    if not child:
        os.setsid()
        fcntl.ioctl(own, termios.TIOCSCTTY, 0)
        for stream in range(3):
            os.dup2(own, stream)
        os.environ.update(PATH=compiler, XDG_CACHE_HOME=folder + '/cold', TERM='xterm', TMPDIR=folder)
        os.execv(program, [program, 'run', model, 'hello there', '--device', 'host'])
    shown = read(terminal, b'kept for next time', 60)
    if b'compiling kernels' not in shown or b'0 of ' not in shown:
        os.kill(child, signal.SIGKILL)
        return f'no progress is shown: {shown}'
    quiet = not echoes(own)
    os.write(terminal, b'typed\n')
    shown = read(terminal, b'typed', 0.5)
    os.kill(child, number)
    shown += read(terminal, b'typed', 0.3)
    ended, status = os.waitpid(child, 0)
    after = echoes(own)
    kept = os.read(own, 100) if select.select([own], [], [], 0)[0] else b''
    os.close(own)
    os.close(terminal)
    name = signal.Signals(number).name
    if not quiet or b'typed' in shown:
        return f'what is typed is shown: {shown}'
    if not before or not after:
        return f'no echo is left by {name}'
    if kept != b'typed\n':
        return f'what was typed is lost by {name}: {kept}'
    wanted = os.WIFEXITED(status) if number == signal.SIGINT else os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
    return '' if wanted else f'{name} ended it with {status}'


signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
for number in signals:  # what shells ignore for jobs in the background
    signal.signal(number, signal.SIG_DFL)
for number in signals:
    wrong = attempt(number)
    if wrong:
        print(wrong)
