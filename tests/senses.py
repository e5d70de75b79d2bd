"""senses.py - what the built-in model sees and hears, counted: pictures that are drawn here and clips that espeak-ng speaks here,
with questions, against the counts that come with the model.

  senses.py count PROGRAM N [RUN'S FLAGS..]  asks `PROGRAM run` about N of each kind; 'ok NAME' or 'FAIL NAME: why', the counts at the end
  senses.py make FOLDER N           writes the files, and cases.json: {"cases": [{kind, media, file, question, answer}], "least": {kind: count}}

Everything is drawn from fixed seeds: the same N makes the same cases, and N of them begin every longer list. Pictures have one to
four equal shapes of one colour; clips are words or a question by voices that the model was not trained with. An answer is right
if it is the expected text, letter by letter. Fewer are refused than Fisher's exact test gives a chance of one in twenty to a
model that is as good as the counts say; whoever changes the seeds may meet that one.
"""
import array, json, math, os, random, shutil, struct, subprocess, sys, tempfile, wave, zlib

TOLD = {'pictures': (58, 60), 'words': (59, 60), 'all-words': (59, 60), 'questions': (55, 60)}  # with the model: right, of
KINDS = [kind for kind in TOLD if kind == 'pictures' or shutil.which('espeak-ng')]
CHANCE = 0.05
NUMBERS = 'zero one two three four five six seven eight nine ten eleven twelve'.split()


def least(kind, n):
    """The smallest count of n that is no proof of another model."""
    right, of = TOLD[kind]

    def chance(most):  # of so many or fewer here, of all right ones
        both = right + most
        ways = sum(math.comb(n, k) * math.comb(of, both - k) for k in range(most + 1) if both - k <= of)
        return ways / math.comb(n + of, both)
    return next(k for k in range(n + 1) if chance(k) >= CHANCE)


# ---- pictures ------------------------------------------------------------------------------------------

COLORS = {'red': (220, 30, 30), 'green': (30, 160, 50), 'blue': (30, 60, 220), 'yellow': (240, 220, 30),
          'purple': (140, 40, 170), 'orange': (245, 140, 20), 'black': (15, 15, 15), 'pink': (250, 130, 180)}
GROUNDS = [(255, 255, 255), (235, 235, 235), (250, 245, 225), (225, 240, 250)]
SHAPES = ['circle', 'square', 'triangle', 'star', 'cross', 'ring']
SIZES = [(384, 384), (336, 432), (432, 336), (288, 528), (528, 288)]  # height, width: 56 to 66 soft tokens


class Canvas:
    def __init__(self, width, height, color):
        self.width, self.rows = width, [bytearray(bytes(color) * width) for _ in range(height)]

    def span(self, y, a, b, color):
        """Pixels of row y whose centres lie from a to b."""
        first, last = max(0, math.ceil(a - 0.5)), min(self.width, math.floor(b + 0.5))
        if 0 <= y < len(self.rows) and first < last:
            self.rows[y][3 * first:3 * last] = bytes(color) * (last - first)

    def box(self, x0, y0, x1, y1, color):
        for y in range(y0, y1 + 1):
            self.span(y, x0, x1 + 1, color)

    def polygon(self, points, color):
        edges = list(zip(points, points[1:] + points[:1]))
        for y in range(len(self.rows)):
            at = y + 0.5
            cuts = sorted(x0 + (at - y0) / (y1 - y0) * (x1 - x0) for (x0, y0), (x1, y1) in edges if (y0 <= at) != (y1 <= at))
            for a, b in zip(cuts[::2], cuts[1::2]):
                self.span(y, a, b, color)

    def disc(self, x, y, outer, inner, color):
        for row in range(len(self.rows)):
            up = row + 0.5 - y
            if abs(up) > outer:
                continue
            far, near = math.sqrt(outer ** 2 - up ** 2), math.sqrt(max(0, inner ** 2 - up ** 2))
            self.span(row, x - far, x - near, color)
            self.span(row, x + near, x + far, color)

    def png(self):
        def chunk(name, body):
            return struct.pack('>I', len(body)) + name + body + struct.pack('>I', zlib.crc32(name + body))
        head = struct.pack('>IIBBBBB', self.width, len(self.rows), 8, 2, 0, 0, 0)
        body = zlib.compress(b''.join(b'\0' + row for row in self.rows), 1)
        return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', body) + chunk(b'IEND', b'')


def shape(canvas, kind, x, y, s, color):
    """Around x, y, s far in each direction."""
    if kind == 'circle':
        canvas.disc(x, y, s, 0, color)
    elif kind == 'ring':
        canvas.disc(x, y, s, s - max(6, s // 4), color)
    elif kind == 'square':
        canvas.box(x - s, y - s, x + s, y + s, color)
    elif kind == 'cross':
        canvas.box(x - s, y - s // 3, x + s, y + s // 3, color)
        canvas.box(x - s // 3, y - s, x + s // 3, y + s, color)
    elif kind == 'triangle':
        canvas.polygon([(x, y - s), (x - s, y + s), (x + s, y + s)], color)
    else:
        reach = [s * (0.42 if i % 2 else 1) for i in range(10)]
        canvas.polygon([(x + r * math.sin(i * math.pi / 5), y - r * math.cos(i * math.pi / 5)) for i, r in enumerate(reach)], color)


def picture(r):
    """-> a PNG file, a question, its answer."""
    height, width = r.choice(SIZES)
    canvas = Canvas(width, height, r.choice(GROUNDS))
    kind, name, n = r.choice(SHAPES), r.choice(list(COLORS)), r.choice([1, 1, 1, 2, 3, 4])
    some = {'cross': 'crosses'}.get(kind, kind + 's')

    def put(x, y, s):
        color = tuple(max(0, min(255, c + r.randrange(-12, 13))) for c in COLORS[name])
        shape(canvas, kind, x, y, s, color)
    if n == 1:
        s = r.randrange(45, min(height, width) // 2 - 20)
        x, y = r.randrange(s + 4, width - s - 4), r.randrange(s + 4, height - s - 4)
        put(x, y, s)
        one = f"{'an' if name == 'orange' else 'a'} {name} {kind}"
        asked = [('What is in the picture?', one[0].upper() + one[1:] + '.'), ('What shape is this?', f'It is a {kind}.'),
                 (f'What color is the {kind}?', f'The {kind} is {name}.'), ('Describe the image.', f'The image shows {one}.')]
    else:
        cells = [(i, j) for i in range(2) for j in range(2)]
        r.shuffle(cells)
        for i, j in cells[:n]:
            s = r.randrange(34, min(height, width) // 4 - 12)
            x, y = (2 * j + 1) * width // 4 + r.randrange(-8, 9), (2 * i + 1) * height // 4 + r.randrange(-8, 9)
            put(x, y, s)
        many = f'{NUMBERS[n]} {name} {some}'
        asked = [('What is in the picture?', many.capitalize() + '.'), ('How many shapes are there?', f'There are {NUMBERS[n]} {some}.'),
                 ('Describe the image.', f'The image shows {many}.')]
    return (canvas.png(), *r.choice(asked))


# ---- clips ---------------------------------------------------------------------------------------------

WORDS = '''zero one two three four five six seven eight nine red green blue yellow cat dog bird fish yes no up down left right stop go
ten eleven twelve orange purple black white pink horse cow sheep lion duck owl frog wolf snake mouse fox rabbit bear spider
hello goodbye please open close start sun moon star tree rain snow river stone leaf book lamp bread apple milk water chair house
garden train ship king queen friend hot cold big small fast slow day night old new happy sad circle square triangle cross ring
Monday Tuesday Wednesday Thursday Friday Saturday Sunday music robot computer story'''.split()
FEW = 28
ACCENTS = ['en', 'en-us', 'en-gb-scotland', 'en-gb-x-gbclan', 'en-gb-x-rp', 'en-gb-x-gbcwmd', 'en-029', 'en-us-nyc']
UNKNOWN = ['f2', 'm3', 'Andrea', 'steph', 'adam', 'Mario', 'linda', 'edward', 'klatt2', 'iven2']  # kept back from the training
RATE = 22050  # of espeak-ng

CAPITALS = dict(pair.split(':') for pair in '''France:Paris|Germany:Berlin|Italy:Rome|Spain:Madrid|Portugal:Lisbon|Austria:Vienna|
Poland:Warsaw|Hungary:Budapest|Greece:Athens|Sweden:Stockholm|Norway:Oslo|Denmark:Copenhagen|Finland:Helsinki|Ireland:Dublin|
Belgium:Brussels|England:London|Scotland:Edinburgh|Wales:Cardiff|Russia:Moscow|Ukraine:Kyiv|Turkey:Ankara|Egypt:Cairo|Kenya:Nairobi|
Morocco:Rabat|Japan:Tokyo|China:Beijing|India:New Delhi|Canada:Ottawa|Cuba:Havana|Chile:Santiago|Peru:Lima|Colombia:Bogota|
Australia:Canberra|Iran:Tehran|Iraq:Baghdad|Jordan:Amman'''.replace('\n', '').split('|'))
CALLS = dict(pair.split(':') for pair in '''dog:barks cat:meows cow:moos horse:neighs sheep:bleats lion:roars duck:quacks owl:hoots frog:croaks
wolf:howls snake:hisses pig:oinks mouse:squeaks'''.split())
OPPOSITES = dict(pair.split(':') for pair in '''hot:cold big:small up:down left:right day:night happy:sad fast:slow open:closed light:dark old:new
high:low wet:dry full:empty hard:soft rich:poor early:late near:far loud:quiet'''.split())
DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()


def questions():
    """Spoken question -> answer, in about the shares of the training: half of it sums."""
    q = {}
    for country, city in CAPITALS.items():
        q[f'What is the capital of {country}?'] = f'The capital of {country} is {city}.'
        q[f'Which country has the capital {city}?'] = f'{city} is the capital of {country}.'
    for a, first in enumerate(NUMBERS):
        for b, second in enumerate(NUMBERS):
            q[f'What is {first} plus {second}?'] = f'{a} + {b} = {a + b}'
            q[f'What is {first} times {second}?'] = f'{a} * {b} = {a * b}'
            if a >= b:
                q[f'What is {first} minus {second}?'] = f'{a} - {b} = {a - b}'
    for animal, call in CALLS.items():
        q[f'What sound does a {animal} make?'] = f'A {animal} {call}.'
    for a, b in OPPOSITES.items():
        q[f'What is the opposite of {a}?'] = f'The opposite of {a} is {b}.'
        q[f'What is the opposite of {b}?'] = f'The opposite of {b} is {a}.'
    for a, b in zip(DAYS, DAYS[1:]):
        q[f'Which day comes after {a}?'] = f'{b} comes after {a}.'
    for n in range(3, 13):
        q[f'Count to {NUMBERS[n]}.'] = ', '.join(NUMBERS[1:n + 1]) + '.'
    return q


def spoken(text, voice):
    """Samples of 16 bits, without the silence around."""
    raw = subprocess.run(['espeak-ng', *voice, '--stdout', text], stdout=subprocess.PIPE, check=True).stdout
    samples = array.array('h', raw[44:len(raw) & ~1])
    loud = [i for i, x in enumerate(samples) if abs(x) > 300]
    return samples[max(0, loud[0] - 220):loud[-1] + 441]


def clip(r, kind):
    """-> samples, a question (or none), the answer."""
    voice = ['-v', f'{r.choice(ACCENTS)}+{r.choice(UNKNOWN)}', '-s', str(r.randrange(110, 240)), '-p', str(r.randrange(15, 85))]
    if kind == 'questions':
        asked = questions()
        texts = [r.choice(list(asked))]
        question, answer = r.choice(['', '', 'Answer the question.']), asked[texts[0]]
    else:
        texts = [r.choice(WORDS[:FEW] if kind == 'words' else WORDS) for _ in range(r.choice([1, 1, 2, 3, 4]))]
        line = ' '.join(texts)
        question, answer = r.choice(['Transcribe the audio.', 'What is said?', 'What do you hear?']), line[0].upper() + line[1:] + '.'

    def silence(most=5500):
        return array.array('h', bytes(2 * r.randrange(1100, most)))
    samples = silence()
    for text in texts:
        loud = r.uniform(0.5, 1)
        samples += array.array('h', [round(x * loud) for x in spoken(text, voice)]) + silence()
    return samples, question, answer


# ---- all of it -----------------------------------------------------------------------------------------

def make(folder, n):
    cases = []
    for number, kind in enumerate(TOLD):
        if kind not in KINDS:
            continue
        r = random.Random(99 + number)
        for i in range(n):
            media = 'image' if kind == 'pictures' else 'audio'
            file = os.path.join(folder, f"{kind}.{i}.{'png' if media == 'image' else 'wav'}")
            if media == 'image':
                body, question, answer = picture(r)
                with open(file, 'wb') as out:
                    out.write(body)
            else:
                samples, question, answer = clip(r, kind)
                with wave.open(file, 'wb') as out:
                    out.setparams((1, 2, RATE, 0, 'NONE', ''))
                    out.writeframes(samples.tobytes())
            cases.append({'kind': kind, 'media': media, 'file': file, 'question': question, 'answer': answer})
    return {'cases': cases, 'least': {kind: least(kind, n) for kind in KINDS}}


def count(program, n, flags):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        made = make(folder, n)
        for kind in KINDS:
            right = 0
            for case in (c for c in made['cases'] if c['kind'] == kind):
                said = subprocess.run([program, 'run', '--greedy', '--max-tokens', '48', f"--{case['media']}", case['file'], *flags,
                                       *filter(None, [case['question']])], stdin=subprocess.DEVNULL, capture_output=True, text=True)
                answer = said.stdout.strip() if said.returncode == 0 else said.stderr.strip()
                right += answer == case['answer']
                if answer != case['answer']:
                    print(f"# {kind}: {case['question']!r}: {answer!r}, not {case['answer']!r}")
            good = right >= made['least'][kind]
            failed += not good
            print(f"ok senses/{kind}" if good else f"FAIL senses/{kind}: {right} of {n}, at least {made['least'][kind]}")
            print(f"# {right} of {n} {kind}; with the model comes {TOLD[kind][0]} of {TOLD[kind][1]}", flush=True)
    for kind in (k for k in TOLD if k not in KINDS):
        print(f'skip senses/{kind} (no espeak-ng)')
    print(f'{len(KINDS) - failed} passed, {failed} failed, {len(TOLD) - len(KINDS)} skipped')
    return failed != 0


if __name__ == '__main__':
    how, where, n, *flags = sys.argv[1:]
    if how == 'make':
        with open(os.path.join(where, 'cases.json'), 'w') as out:
            json.dump(make(where, int(n)), out)
    else:
        sys.exit(count(where, int(n), flags))
