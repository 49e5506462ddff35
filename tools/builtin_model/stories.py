#!/usr/bin/env python3
"""Writes small English stories: the training text of the built-in model.

`story(seed)` returns one story; the same seed always gives the same story, on every machine.
Each story introduces a few facts early (a name, a friend, who gave which thing, a number, a word,
a message) and needs them again near its end, so that reading it well takes memory. The places
where a fact returns are recorded as probes: evaluate.py asks a model to fill them in.

How a story is made: a plot is a function that tells its paragraphs in order. A paragraph is a
template in which [one|another|a third] picks at random (it nests; an empty choice is allowed) and
{slot} inserts a fact of this story; {*slot} inserts it too and records a probe there. Pronouns are
slots as well, so they always agree. Small scenes that fit any journey are drawn from a common
pool, which makes the way between a fact and its return long and never the same.

All sentences were written for this file.

    stories.py [--seed N] [--count N]      print stories, separated by a line of dashes
"""

import argparse
import random
import re

GIRLS = """Lily Anna Mia Rosa Nora Clara Ella Ida Maya Lucy Sara Emma Ruth Tilda Hanna Jana Wanda
Sofia Greta Iris Olive Pearl Vera Zoe Amira Leila Yuki Mina Aiko Nadia Tess Polly Marta Elsa Freya
Sunny Hazel Daisy Ivy Lena Kira Dora Bella Molly Alma Juno Fern""".split()
BOYS = """Tom Ben Max Sam Jack Leo Finn Hugo Oscar Emil Jonas Peter Paul Felix Otto Karl Noah Luca
Omar Yusuf Kenji Ravi Ivan Milo Theo Henry Walter Simon Anton Bruno Jasper Kit Robin Toby Will Ned
Arlo Nico Samir Tariq Oliver Rufus Pablo Dario Lars Erik Timmy Basil""".split()
PETS = """Pip Moss Rusty Bramble Nutmeg Pebble Clover Biscuit Tumble Whisper Button Acorn Thistle
Pepper Ginger Dusty Maple Snow Cinder Willow Fidget Poppy Sorrel Twig Bubble Plum Barley Copper
Velvet Domino Mango Patch Sparrow Fuzz Hop""".split()
SYLLABLES = ("ba be bi bo da do fa fi ga go ka ki la le li lo ma me mi mo na ne ni no pa pe po "
             "ra ri ro sa si ta te ti to va vi wa za zo".split(),
             "l n r s m ll nn k d".split(),
             "a i o ia el in us ina y".split())
ANIMALS = """fox mouse rabbit hedgehog squirrel otter badger bear duck frog owl mole beaver goat
lamb pony kitten puppy turtle sparrow""".split()
ANIMAL_LOOKS = "small|little|young|brown|grey|round|quick|shy|cheerful|fluffy|very small|curious"

HOMES = ["in a small house by the river", "in a tall narrow house on the market square",
         "in a village at the foot of a mountain", "in a cottage at the edge of the forest",
         "on a farm with a red roof", "in a little town by the sea", "above a bakery",
         "in an old mill", "in a house with a blue door", "on an island with one road",
         "near the harbour", "in a valley full of apple trees", "beside a quiet lake",
         "in a lighthouse on the rocks", "behind the school", "in a house made of stone",
         "at the end of a long lane", "in a village with seven houses"]
DENS = ["under the roots of an old oak", "in a warm hole beside the stream",
        "in a hollow tree at the edge of the wood", "under a bramble hedge",
        "on the bank of a slow river", "in a barn full of hay", "behind the garden wall",
        "in the tall grass by the pond", "between two grey stones on the hill",
        "in a cosy den below the pine trees", "under the floor of the old mill"]
PLACES = ["the old mill", "the wooden bridge", "the apple orchard", "the market square",
          "the windy hill", "the quiet lake", "the birch wood", "the stone well", "the harbour",
          "the lighthouse", "the ruined tower", "the mossy rocks", "the bakery", "the school",
          "the long meadow", "the pine forest", "the chapel", "the sandy beach", "the barley field",
          "the waterfall", "the crossroads", "the ferry", "the rose garden", "the little station"]
COLOURS = "red blue green yellow white black orange purple pink grey golden silver brown".split()
# What a keepsake is good for decides the trouble in which it comes back.
KEEPSAKES = {
    "light": (["lantern", "candle", "lamp"], COLOURS),
    "sound": (["whistle", "bell", "horn", "drum"],
              ["tin", "wooden", "brass", "silver", "copper", "red", "blue", "green", "small"]),
    "tie": (["ribbon", "scarf", "string", "rope", "shawl", "belt"], COLOURS),
    "shine": (["button", "marble", "coin", "bead", "mirror", "spoon"],
              COLOURS + ["copper", "brass", "glass", "shiny"]),
    "hold": (["cup", "jar", "bowl", "bucket", "bottle", "kettle"],
             COLOURS + ["tin", "wooden", "clay", "copper"]),
    "heart": (["pebble", "shell", "feather", "acorn", "stone", "pine cone", "chestnut"],
              ["white", "grey", "smooth", "round", "striped", "brown", "tiny", "black", "golden"]),
    "key": (["key"], ["iron", "brass", "silver", "golden", "copper", "rusty", "tiny", "black",
                      "blue", "red"]),
}
GIFTS = ["a loaf of warm bread", "a pot of honey", "a basket of plums", "a jar of cherry jam",
         "a round cheese", "a bag of nuts", "a pot of onion soup", "a woollen blanket",
         "a pair of thick socks", "a lemon cake", "a bunch of tulips", "a bottle of apple juice",
         "a bag of flour", "a box of candles", "a dozen eggs", "a pumpkin pie",
         "a knitted hat", "a bundle of dry wood", "a tin of tea", "a poppy seed cake"]
JOBS = ("baker miller farmer shoemaker carpenter gardener teacher sailor doctor clockmaker "
        "blacksmith painter tailor cook beekeeper potter weaver singer hatter printer").split()
FRUIT = "apples pears plums cherries nuts figs berries carrots buns biscuits peaches".split()
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
WORDS = ("moonlight pumpkin thunder butterfly lavender cinnamon snowflake marmalade hazelnut "
         "starfish dandelion pepper raindrop gingerbread sunflower bluebell feather honeycomb "
         "whisper nightingale strawberry silver lighthouse peppermint").split()
SKILLS = [("whistle", "whistling"), ("swim", "swimming"), ("skate", "skating"), ("read", "reading"),
          ("dance", "dancing"), ("juggle", "juggling"), ("climb trees", "climbing"),
          ("bake bread", "baking"), ("play the flute", "playing"), ("row a boat", "rowing"),
          ("paint", "painting"), ("sing", "singing"), ("fly a kite", "flying a kite"),
          ("ride a bicycle", "riding"), ("knit", "knitting"), ("tie knots", "tying knots")]
ADVICE = ["First breathe, then begin", "Slow hands learn fast", "Fall once, stand up twice",
          "A little every day is a lot", "Look far, not down", "Count to four and smile",
          "Listen before you start", "Nobody is born knowing", "Soft knees and open eyes",
          "Begin again, but gently", "Think of something you love", "One small step is a step"]
DISHES = [("soup", ["a carrot", "an onion", "a potato", "a leek", "a pinch of salt", "a tomato",
                    "a handful of beans", "a bunch of parsley", "a cup of cream", "a mushroom"]),
          ("cake", ["an egg", "a cup of flour", "a spoon of honey", "a lemon", "a cup of milk",
                    "a piece of butter", "a handful of raisins", "a stick of cinnamon", "an apple",
                    "a handful of almonds"]),
          ("pie", ["a pumpkin", "a bowl of cherries", "a cup of flour", "a piece of butter",
                   "a jar of jam", "a handful of nuts", "a spoon of sugar", "a pear"])]
LANDMARKS = ["the crooked oak", "the white stone", "the little bridge", "the broken fence",
             "the hollow log", "the tall pine", "the old gate", "the round pond", "the red barn",
             "the three birches", "the stone bench", "the holly bush", "the empty well",
             "the sleeping rock"]
DOORS = COLOURS[:8]


def bare(phrase):
    """The phrase without its article."""
    return re.sub("^an? ", "", phrase)


class Story:
    """One story being told: its random source, its facts (slots) and its paragraphs."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.slots = {}
        self.used = set()
        self.names = set()
        self.paragraphs = []
        self.scenes_told = set()
        self.winter = False

    def pick(self, choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    def set(self, **facts):
        self.slots.update(facts)

    def fresh(self, choices):
        """A choice that this story has not used yet."""
        left = [c for c in choices if c not in self.used]
        value = self.pick(left)
        self.used.add(value)
        return value

    def name(self, kind):
        """A name; now and then one that no list has, so that a reader must copy, not know."""
        name = None
        if self.chance(0.12):
            first, middle, last = SYLLABLES
            name = (self.pick(first) + self.pick(middle) + self.pick(last)).capitalize()
        if name is None or name in self.used:
            name = self.fresh({"girl": GIRLS, "boy": BOYS, "animal": PETS}[kind])
        self.used.add(name)
        self.names.add(name)
        return name

    def person(self, prefix, name, female):
        he, him, his = ("she", "her", "her") if female else ("he", "him", "his")
        self.set(**{prefix: name, prefix + "he": he, prefix + "him": him, prefix + "his": his,
                    prefix + "self": him + "self"})

    def fill(self, template):
        while True:
            inner = re.search(r"\[([^\[\]]*)\]", template)
            if not inner:
                break
            choice = self.pick(inner.group(1).split("|"))
            template = template[:inner.start()] + choice + template[inner.end():]
        text = re.sub(r"\{(\*?)(\w+)\}", self.slot, template)
        return re.sub(r"  +", " ", text).strip()

    def slot(self, match):
        value = self.slots[match.group(2)]
        return "\1" + value + "\2" if match.group(1) else value

    def tell(self, *sentences):
        """Add a paragraph: the sentences, each a template."""
        text = " ".join(filter(None, (self.fill(s) for s in sentences)))
        text = re.sub("\\b([Aa]) (?=\1?[aeiouAEIOU])", r"\1n ", text)
        # A sentence begins at the start, after a full stop, and after a quotation with one.
        text = re.sub('(^"?|[.!?] "?|[.]" )(\1?[a-z])',
                      lambda m: m.group(1) + m.group(2).upper(), text)
        if text:
            self.paragraphs.append(text)

    def finish(self, joined):
        """The text, and the probes as (offset, expected words). `joined`: no line begins with a
        name; such a paragraph goes on in the line before it. A tokenizer writes a word after a line
        break with other pieces than after a space, and a small model finds that hard."""
        marked = self.paragraphs[0]
        for paragraph in self.paragraphs[1:]:
            first = re.match("\1?(\\w*)", paragraph).group(1)
            marked += (" " if joined and first in self.names else "\n") + paragraph
        text, probes, start = [], [], None
        for c in marked:
            if c == "\1":
                start = len(text)
            elif c == "\2":
                probes.append((start, "".join(text[start:])))
            else:
                text.append(c)
        return "".join(text), probes


# ---------------------------------------------------------------------------------------------
# Who the story is about
# ---------------------------------------------------------------------------------------------

def cast(s):
    """Choose hero, friend and elder; they have different names."""
    kind = s.pick(["girl", "girl", "boy", "boy", "animal"])
    female = kind == "girl" or (kind == "animal" and s.chance(0.5))
    s.person("H", s.name(kind), female)
    s.set(kind=kind, hands="paws" if kind == "animal" else "hands")
    if kind == "animal":
        animal = s.fresh(ANIMALS)
        s.set(who=s.fill(f"[{ANIMAL_LOOKS}] {animal}"), short=animal, home=s.pick(DENS))
        friend_kind, friend_female = "animal", s.chance(0.5)
        friend_who = s.fresh(ANIMALS)
        s.set(Fwho=friend_who)
        s.person("F", s.name("animal"), friend_female)
    else:
        word = "girl" if female else "boy"
        s.set(who=s.fill("[little|little|young|small|kind|quiet|curious|brave|clever|cheerful] "
                         f"{word}"),
              short=word, home=s.pick(HOMES))
        if s.chance(0.3):
            friend_who = s.fresh(["dog", "cat", "goat", "pony", "goose", "donkey", "parrot"])
            s.set(Fwho=friend_who)
            s.person("F", s.name("animal"), s.chance(0.5))
        else:
            friend_kind = s.pick(["girl", "boy"])
            s.set(Fwho=friend_kind)
            s.person("F", s.name(friend_kind), friend_kind == "girl")
    s.used.update(p for p in PLACES if p.split()[-1] in s.slots["home"])
    elder_female = s.chance(0.5)
    elder_name = s.name("girl" if elder_female else "boy")
    if elder_female:
        title = s.pick(["old", "old", "Grandmother", "Aunt", "Mrs", "Granny"])
    else:
        title = s.pick(["old", "old", "Grandfather", "Uncle", "Mr", "Captain"])
    s.person("E", f"{title} {elder_name}", elder_female)
    s.set(job=s.pick(JOBS))


TRAITS = ("[loved to ask questions|liked quiet mornings|sang to {Hself} while walking|could not "
          "sit still for long|knew the name of every bird|always had something in {Hhis} "
          "pockets|laughed easily|was a little afraid of the dark|noticed small things|was "
          "never in a hurry|loved the smell of rain|wanted to see the whole world|liked to "
          "help|was good at listening|got up before the sun|liked stories more than "
          "sweets|collected round stones|had a very good nose]")
TRAITS_ANIMAL = ("[loved to ask questions|liked quiet mornings|sang while walking|could not sit "
                 "still for long|knew every path in the wood|laughed easily|was a little afraid "
                 "of the dark|noticed small things|was never in a hurry|loved the smell of "
                 "rain|wanted to see the whole world|liked to help|was good at listening|got up "
                 "before the sun|had a very good nose|was always a little hungry]")


def opening(s):
    """The first paragraph: who and where, and usually the friend."""
    traits = TRAITS_ANIMAL if s.slots["kind"] == "animal" else TRAITS
    named = "[named|called]"
    season = "winter" if s.winter else "[spring|summer|autumn|May|the holidays]"
    start = s.pick([
        f"Once upon a time[,|] there was a {{who}} {named} {{H}}. {{Hhe}} lived {{home}}.",
        f"Once upon a time[,|] there was a {{who}} {named} {{H}} who lived {{home}}.",
        f"Once upon a time, a {{who}} {named} {{H}} lived {{home}}.",
        f"Once upon a time, {{home}}, there lived a {{who}} {named} {{H}}.",
        f"One day, a {{who}} {named} {{H}} woke up very early. {{Hhe}} lived {{home}}.",
        f"One [fine|cold|bright|windy|rainy] [morning|day], a {{who}} {named} {{H}} looked out "
        "at the world. {Hhe} lived {home}.",
        f"There was [once|] a {{who}} {named} {{H}}. {{Hhe}} lived {{home}}.",
        f"There once was a {{who}} {named} {{H}}, who lived {{home}}.",
        f"Long ago, {{home}}, there lived a {{who}} {named} {{H}}.",
        f"Long ago[,|] there was a {{who}} {named} {{H}}. {{Hhe}} lived {{home}}.",
        "{H} was a {who}. {Hhe} lived {home}.",
        "{H} was a {who} who lived {home}.",
        "{H} lived {home}. {Hhe} was a {who}.",
        "{H} and {F} were best friends. {H} was a {who} and lived {home}.",
        "{H} the {short} lived {home}.",
        "The {who} who lived {home} was called {H}.",
        f"Far away, {{home}}, there lived a {{who}} {named} {{H}}.",
        "Do you know the story of {H}? {Hhe} was a {who} and lived {home}.",
        "This is the story of {H}, a {who} who lived {home}.",
        "In [a small village|a little town|a green valley|a far country], there was a {who} "
        f"{named} {{H}}.",
        "Every morning, {H} opened {Hhis} eyes and smiled. {Hhe} was a {who} and lived {home}.",
        f"It was the first day of {season}, and {{H}} was already awake. {{Hhe}} was a {{who}} "
        "who lived {home}.",
        "Nobody was as curious as {H}, a {who} who lived {home}.",
        f"My grandmother told me about a {{who}} {named} {{H}}, who lived {{home}}.",
    ])
    trait = s.pick([f"{{Hhe}} {traits}.", f"{{H}} {traits}.",
                    "Everybody liked {Hhim}, for {Hhe} [was kind|had a good heart|could laugh "
                    "at {Hself}].", "", f"{{Hhe}} {traits}."])
    friend = s.pick([
        "{Hhis} best friend was a {Fwho} [named|called] {F}.",
        "{Hhe} had a friend, a {Fwho} [named|called] {F}, and the two were [always|often|nearly "
        "always] together.",
        "Next door lived a {Fwho} [named|called] {F}, who was {Hhis} best friend.",
        "With {Hhim} was almost always {F}, a [funny|gentle|sleepy|lively|patient] {Fwho}.",
        "{Hhis} friend {F}, a [funny|gentle|sleepy|lively|patient] {Fwho}, lived close by.",
    ])
    if start.startswith("{H} and {F}"):
        friend = "{F} was a [funny|gentle|sleepy|lively|patient] {Fwho}."
    s.tell(start, trait, friend)


# ---------------------------------------------------------------------------------------------
# Small scenes that fit into any journey
# ---------------------------------------------------------------------------------------------

def walk(s):
    """One sentence of going somewhere."""
    a, b = s.fresh(PLACES), s.fresh(PLACES)
    return s.pick([
        f"{{H}} went past {a} and over to {b}.",
        f"The way led past {a} and [then|after that] to {b}.",
        f"{{Hhe}} walked as far as {a}, [rested a little|drank some water|looked around], and "
        f"went on to {b}.",
        f"[Soon|Before long|After a while] {{H}} came to {a}.",
        f"From {a} it was not far to {b}.",
        f"Near {a}, the path turned towards {b}.",
        f"{{H}} hummed a tune all the way from {a} to {b}.",
    ])


WEATHER = ("[The sun was warm on {Hhis} back.|A light wind moved the leaves.|Small clouds "
           "sailed over the hills.|Somewhere a bird was singing.|The grass was still wet.|The "
           "air smelled of earth and flowers.|Bees hummed in the clover.|It was so quiet that "
           "{H} could hear {Hhis} own steps.||||]")


def scene_snail(s):
    s.tell('[On a stone sat|In the middle of the path was|Under a leaf sat] a snail. "[Where '
           'are you going so fast|Why such a hurry|What is the news]?" asked the snail.',
           '"I am not fast," said {H}. "[To me you are|Everyone is fast for me]!" said the '
           "snail, and they both laughed.",
           "[{H} carried the snail to the other side|{H} gave the snail a fresh green leaf|{H} "
           "told the snail the whole story], and [went on|walked on|said goodbye].")


def scene_bird(s):
    s.tell("A [young|small|tiny] bird had fallen out of its nest [and was crying|and sat in the "
           "grass]. {H} [lifted it up very gently|picked it up with both {hands}] and put it "
           "back.",
           '"[Thank you|Thank you so much]!" [called|sang] its mother from the branch. "[I will '
           'tell everyone how kind you are|I will sing for you tomorrow|May your way be easy]!"')


def scene_stream(s):
    s.tell("Then there was a stream, and [no bridge|the bridge was gone|the bridge was broken]. "
           "{H} [found some flat stones and crossed step by step|found a fallen tree and went "
           "across very slowly|looked left and right and jumped over at the narrowest place].",
           "[Only one foot got wet.|The water was cold and clear.|A silver fish watched from "
           "below.|A frog clapped.]")


def scene_rain(s):
    s.tell("[Suddenly|All at once|Then] it began to rain. {H} [hid under a big tree|waited "
           "under a roof of leaves|ran to an empty barn] and listened to the drops.",
           "[When the rain stopped|When it was over], [a rainbow stood over the "
           "fields|everything shone|the whole world smelled new|the puddles were full of sky].",
           "[\"That was worth the wait,\" said {H}.|{H} jumped over every puddle but one.|]")


def scene_cow(s):
    s.tell("Behind a fence stood a cow [with sad eyes|who looked bored|with a bell around her "
           'neck]. "[Nobody ever talks to me|It is a long day|I have been standing here since '
           'Monday]," said the cow.',
           "So {H} [stayed a while and talked with her|told her a joke|sang her a song], and "
           "the cow [felt better|looked much happier|even danced a little].")


def scene_baker(s):
    name = s.name(s.pick(["girl", "boy"]))
    job = s.fresh(JOBS)
    s.tell(f'At the [corner|next house|garden gate] {{H}} met {name} the {job}. "[Good '
           f'day|Hello|Good morning], {{H}}!" said {name}. "[You look as if you had a '
           'plan|Where are you off to|You are up early]!"',
           f'{{H}} told {name} [everything|about it|where the way was leading]. "[Then I will '
           f'not keep you|Good luck|Mind the mud by the gate]," said {name}[| and waved|, '
           "smiling].")


def scene_ants(s):
    n = s.pick(NUMBERS[3:9])
    s.tell(f"[A row of ants|Some ants] crossed the path, and {n} of them carried a "
           "[crumb|seed|dry leaf] that was [far too big|much bigger than they were]. {H} "
           "[stopped and let them pass|waited until the last one was over].",
           '"[Together it is easy|Many small ones are strong]," [called one of the ants|said '
           "the last ant]. {H} [thought about that for a long time|liked that].")


def scene_hungry(s):
    s.tell("[By noon|After some time|Soon] {H} was hungry. In {Hhis} bag was only [one piece of "
           "bread|a small apple|a bit of cheese]. [Just then|At that moment] a thin "
           "[dog|cat|crow|mouse] came and looked at it.",
           "{H} [thought for a moment|sighed|smiled] and broke it in two. [Half a meal with "
           "company tastes better than a whole one alone|Shared food tastes best of all], {H} "
           "found.")


def scene_wind(s):
    s.tell("On the open hill the wind was so strong that [{H} had to walk bent over|{H} nearly "
           "flew away|even the crows walked].",
           '"[Let me through, please|Be nice]," {H} [shouted|said] to the wind. [The wind only '
           "laughed.|The wind pulled at {Hhis} ears.|For a moment it grew still, as if it had "
           "heard.]")


def scene_crossroad(s):
    left, right = s.fresh(PLACES), s.fresh(PLACES)
    s.tell(f"At a fork in the road stood a sign. One arm pointed to {left}, the other to "
           f"{right}. {{H}} [closed {{Hhis}} eyes and listened|scratched {{Hhis}} head|asked a "
           f"passing crow], and [took|chose] the way to {s.pick([left, right])}.",
           '[It was the right one.|It was the longer one, but it was beautiful.|"All ways are '
           'good if you look around," {H} thought.]')


def scene_frog(s):
    s.tell('By a pond sat a fat frog who [wanted to hear a riddle|loved riddles]. "What has a '
           '[bed but never sleeps|mouth but never speaks]?" asked the frog. {H} [thought '
           'hard|looked at the water and smiled]. "A river!"',
           '"[Right|Correct|Very good]!" said the frog, [and jumped into the water with a '
           "splash|and bowed|and looked pleased].")


def scene_rest(s):
    s.tell("[After that|Then|For a little while] {H} [sat down on a warm stone|lay down in the "
           "grass|leaned on a tree] [and looked at the clouds|and closed {Hhis} eyes].",
           "One cloud looked like a [ship|whale|sleeping cat|loaf of bread|castle], another "
           "like a [hat|teapot|dragon|boot]. [It would have been nice to stay|It was hard to "
           "get up again], but there was still [some way|a long way] to go.")


def scene_sheep(s):
    s.tell('A shepherd was [counting|looking for] his sheep. "[One is missing|I always lose '
           'one]," he said. {H} [looked behind the hedge|climbed a wall and looked around|heard '
           "a soft sound], and there it was, [asleep|stuck in the thorns|eating somebody's "
           "cabbages].",
           "\"[You have good eyes|What would I do without you]!\" said the shepherd.")


def scene_errand(s):
    who = s.fresh(["an old woman with a stick", "a boy on a donkey", "a girl with a goose",
                   "a very small giant", "a man with a long beard", "a travelling tinker",
                   "a talking crow", "a fat cat on a wall"])
    s.tell(f'[After a bend|On the road|A little later] there was {who}. "[What is your name|Who '
           'are you], and where are you going?" "[I am|My name is] {*H}," said {H}, "and I want '
           '{errand}."',
           '"[That is a good reason|Then go on, and do not stop|That is a fine thing to do]!" '
           "was the answer.")


def scene_bees(s):
    flower = s.pick(["poppies", "daisies", "bluebells", "lilies", "cornflowers", "snowdrops",
                     "foxgloves", "buttercups"])
    s.tell(f"[Beside the way|In a field] grew {flower}, so many that everything hummed with "
           "bees. {H} [stood quite still|held {Hhis} breath], and one bee sat down on {Hhis} "
           "nose.",
           '"[Excuse me|Sorry]," said the bee. "[I thought you were a flower|You smell of '
           'honey]." {H} [was proud of that|laughed so much that the bee fell off].')


def scene_bridge(s):
    s.tell("Under [a|an old] bridge lived a troll, but he was [a very polite one|only as big as "
           'a cat|mostly asleep]. "[Who walks over my roof|Who is that up there]?" he called.',
           '"It is only {H}," said {H}. "[Then walk softly|Then good day], {*H}," said the '
           "troll[|, and went back to his soup].")


def scene_mud(s):
    s.tell("[The path became muddy|It had rained here]. One foot got stuck, and {H} pulled so "
           "hard that {Hhe} sat down in the mud with a loud plop.",
           'A [duck|goose|pig] [watched|saw it]. "[Ten points|Very good]," it said. "[I could '
           'not do it better|That is how I sit, too]." {H} [had to laugh|wiped off the worst] '
           "and went on.")


def scene_hat(s):
    colour = s.pick(COLOURS)
    s.tell(f"[A gust of wind blew|The wind brought] a {colour} hat across the road. {{H}} "
           '[caught it in the air|ran after it and caught it]. "My hat!" called a '
           "[tall|fat|thin|young] man [from far away|behind a hedge].",
           f'{{H}} gave him the {colour} hat. "[You are quicker than the wind|What a catch]," '
           "said the man, [out of breath|and put it on the wrong way round].")


def scene_echo(s):
    ask, answer = s.pick([("Who is there", "There"), ("Are you alone", "Alone")])
    s.tell('Between two [rocks|hills|high walls] there was an echo. "Hello!" called {H}. '
           f'"Hello!" said the echo. "{ask}?" "{answer}?" asked the echo.',
           '"[{*H} was here|Greetings from {*H}]!" shouted {H}. And for once the echo [said '
           "nothing at all|answered, very softly, from far away].")


def scene_ferry(s):
    s.tell('A wide river lay in the way. An old [man|woman] with a boat took {H} across. "What '
           'do I owe you?" asked {H}. "[A story|A song|A riddle]," was the answer.',
           "So, in the middle of the river, {H} told of [{F}, and how they had met|{E}, and of "
           "all {Ehis} tricks|the time when {F} had eaten a whole cake]. [The boat rocked with "
           "laughter.|It was a short trip, but a good one.]")


def scene_butterfly(s):
    colour = s.pick(COLOURS)
    s.tell(f"A {colour} butterfly flew ahead of {{H}}, from [flower to flower|bush to bush], as "
           "if it wanted to show the way. {H} followed it [for a while|over a little hill].",
           "[Then it was gone|Then it rose up], and {H} [waved to it|was a little sad]. {Hhe} "
           f"saw [one more {colour} butterfly|no other butterfly] that day.")


def scene_oldtree(s):
    s.tell("[There stood a tree so old|In the field was a tree so old] that [nobody knew its "
           'age|it leaned on a stick]. {H} put an ear to it. "[Slowly, slowly|Hmmm]," said the '
           "tree, [or was it the wind|or so it seemed].",
           '"[Are you listening|Are you tired]?" asked {H}. [One leaf came down as an answer.|A '
           "long time nothing happened. Then an acorn fell on {Hhis} head.] {H} [kept it|took "
           "that for a yes].")


def scene_song(s):
    animal = s.pick(["cricket", "blackbird", "cuckoo", "frog", "robin", "lark"])
    s.tell(f'A {animal} was practising [a new song|one hard note]. "[It always goes wrong|I '
           f'cannot get it right]," said the {animal}. {{H}} [sat down and listened|hummed '
           "along].",
           '[Together|After the tenth time] it [sounded right|was perfect]. "[I shall call '
           f"it|The song will be called] 'The Song of {{*H}}',\" said the {animal}[, and "
           "bowed|].")


def scene_goats(s):
    s.tell('Two goats stood on a narrow bridge, head to head. "You go back," said one. "No, you '
           'go back," said the other.',
           '"[One of you could lie down, and the other could step over|What if you both laugh '
           'first]," said {H}. [They tried it, and it worked.|They had never thought of that.]')


def scene_sweets(s):
    n = s.pick(NUMBERS[3:10])
    s.tell(f'At a window, a [woman|man] was [cooling|counting] cakes. "There were {n}, and now '
           f'there are {NUMBERS[NUMBERS.index(n) - 1]}. Did you take one?" "[No, not I|It was '
           'not me]," said {H}, "but there is a [cat|squirrel|jackdaw] on your roof with jam on '
           'its face."',
           "[They both laughed.|That solved the case.] And {H} [got a small cake for the "
           "way|went on with a warm piece of cake].")


def scene_scarecrow(s):
    s.tell('In a field stood a scarecrow with a [torn|red|straw|pointed] hat. "[Are you not '
           'bored|Do the crows come]?" asked {H}. The scarecrow [said nothing, but winked|shook '
           "its head a little, or was it the wind].",
           'A crow sat on its shoulder. "[We are old friends|He tells good stories|He only '
           'scares the farmer]," said the crow.')


def scene_well(s):
    s.tell("[By the road|Behind an old wall] was a wishing well. {H} had no coin, so {Hhe} "
           "threw in [a button|a round stone|a daisy] and made a wish. [Nobody knows what it "
           "was.|It was a wish for {*F}.]",
           '"[Thank you|I like that better than coins]," said a voice from below. [{H} looked '
           "down, but saw only the sky.|It may have been a frog.]")


def scene_peddler(s):
    a, b, c = s.random.sample(["needles", "combs", "bells", "ribbons", "whistles", "buttons",
                               "pots", "candles", "brushes", "balloons", "mirrors", "umbrellas"], 3)
    s.tell(f'A peddler came by with a [heavy|tall|squeaking] cart. "{a.capitalize()}, {b}, '
           f'{c}!" he called. "[What would you like|Anything for you today]?"',
           '"[I have no money|Not today, thank you]," said {H}. "[Then take a smile|A friendly '
           'word costs nothing|Another time]," said the peddler, and the cart with the '
           f"{s.pick([a, b, c])} rolled on.")


def scene_ducks(s):
    n = s.pick(NUMBERS[3:10])
    s.tell(f"A duck and her {n} ducklings wanted to cross the road. {{H}} [stretched out both "
           "arms|stood in the middle of the road] and stopped [a cart|a bicycle|a coach with "
           "two horses].",
           f'"[Quick, quick|One after the other]," said the duck. {{H}} counted: {n}. [All of '
           "them were there.|Nobody was missing.|The last one bowed.]")


def scene_berries(s):
    berry = s.pick(["blackberries", "raspberries", "wild strawberries", "blueberries",
                    "gooseberries"])
    s.tell(f"[Along the wall|At the edge of the wood] grew {berry}. {{H}} [ate one, and then "
           "ten more|ate until {Hhis} mouth was dark red|could not walk past].",
           '"Leave some for me," said a [thrush|wasp|small bear|dormouse]. "[There are enough '
           'for the two of us|Of course]," said {H}. [And they ate side by side.|They nodded at '
           "each other.]")


def scene_band(s):
    a, b = s.random.sample(["a fiddle", "a trumpet", "a drum", "an accordion", "a flute",
                            "a tuba", "a triangle"], 2)
    s.tell(f"[Music came nearer|Music was in the air]: a donkey with {a} and a hen with {b}. "
           '"[We are going to town to be famous|We are the best band in the land]," said the '
           "donkey.",
           '{H} [danced a few steps|clapped along|listened to three songs]. "[You are good|I '
           'will come to your concert]," {Hhe} called after them.')


def scene_fog(s):
    s.tell("[For a while|Then] the mist lay so low that {H} [saw only the tops of the "
           "trees|could not see {Hhis} knees|seemed to walk on clouds]. [It was like a "
           "dream.|Everything was white and still.]",
           "[A heron rose without a sound.|Somewhere a dog barked.|A bell rang far away.] Then "
           "the sun came through, and there was the path again.")


def scene_cat(s):
    s.tell("On a [gate|wall|doorstep] lay a cat, [as grey as smoke|as black as coal|as orange "
           'as a carrot]. "[You may stroke me|You are allowed to scratch my ears]," said the '
           'cat, "[but only five times|but not on the belly]."',
           '{H} [did so|obeyed]. "[Good|Not bad]," said the cat. "[I will tell the others about '
           'you|Now you have luck until Friday]."')


def scene_school(s):
    name = s.name(s.pick(["girl", "boy"]))
    s.tell(f'From an open window came a voice. "{name}, what is [seven and five|three times '
           'four|ten and two]?" Nobody answered. {H} whispered through the window, "Twelve!"',
           f'"Twelve," said {name}. "[Very good|Right]!" said the teacher. And {name} '
           "[waved|threw an apple out of the window as a thank you|made a happy face].")


def scene_letter(s):
    name = s.name(s.pick(["girl", "boy"]))
    s.tell(f"A letter lay on the ground. For {name}, it said. {{H}} [asked at three doors|asked "
           "everyone who came by], until a [woman|man] with flour on [both arms|the nose] said, "
           '"That is [my child|my neighbour]!"',
           "In the letter was only one line: '[I am coming home|I miss you|It is a girl|The cat "
           f"is well].' {name} [cried for joy|read it four times].")


SCENES = [scene_snail, scene_bird, scene_stream, scene_rain, scene_cow, scene_baker, scene_ants,
          scene_hungry, scene_wind, scene_crossroad, scene_frog, scene_rest, scene_sheep,
          scene_errand, scene_errand, scene_bees, scene_bridge, scene_mud, scene_hat,
          scene_echo, scene_ferry, scene_butterfly, scene_oldtree, scene_song, scene_goats,
          scene_sweets, scene_scarecrow, scene_well, scene_peddler, scene_ducks, scene_berries,
          scene_band, scene_fog, scene_cat, scene_school, scene_letter]


SUMMER_SCENES = {scene_bees, scene_berries, scene_butterfly, scene_frog, scene_ducks, scene_mud,
                 scene_rain, scene_rest, scene_stream, scene_snail, scene_bird, scene_ants,
                 scene_ferry, scene_song, scene_scarecrow, scene_sheep, scene_cow}


def journey(s, scenes):
    """`scenes` different scenes, with a little walking between them."""
    for _ in range(scenes):
        scene = s.pick([x for x in SCENES if x not in s.scenes_told
                        and not (s.winter and x in SUMMER_SCENES)])
        s.scenes_told.add(scene)
        if s.chance(0.5):
            s.tell(walk(s), "" if s.winter else WEATHER)
        scene(s)


def ending(s, together=False):
    """The last lines. `together`: the friend was there, so nobody needs to tell the tale."""
    apart = [
        "In the evening {H} told {F} everything, from the beginning to the end. {F} [listened "
        "with big eyes|laughed in all the right places|wanted to hear it again].",
        '"Where have you been all day?" asked {F}[ later|]. And {H} told it all, [until it was '
        "dark|twice]. {F} [could hardly believe it|never once fell asleep].",
    ]
    s.tell(s.pick(([] if together else apart) + [
        "That night, {H} [fell asleep with a smile|slept deep and well|dreamed of the long "
        "way]. [And outside, the moon watched over the roofs.|And the stars came out, one by "
        "one.|]",
        "And [from that day on|after that], {H} and {F} were [even better friends|never "
        "bored|always glad of each other]."
        if s.chance(0.5) else
        "[From that day on|After that], {H} and {F} [told the story again and again|often "
        "laughed about it|went everywhere together].",
        '"[What a day|That was a good day]," said {F}. "[The best|A very good one]," said {H}. '
        "And [they watched the sun go down|they were both right|it was true].",
        "So {H} learned that [small things can be big|a kind word goes a long way|it is good to "
        "have friends|remembering is a kind of treasure|you are never too small to "
        "help|patience is a kind of courage].",
        "Much later, when {H} was [old|grown up], {Hhe} still [thought of that day|told of that "
        "day], and [of {*E}|of {*F}|of how it all began].",
        "{H} [looked back once|yawned happily|was very tired]. [It had been a long day, and a "
        'good one.|Tomorrow there would be pancakes.] ["Good night, {*F}," {Hhe} said.|Then '
        "{Hhe} went to bed.]",
        "The next morning, the sun shone as if nothing had happened. But {H} and {F} [knew "
        "better|smiled at each other].",
        "And what became of {H}? [{Hhe} lived happily, with {*F} next door.|{Hhe} is still "
        "there, and so is {*F}.]",
        "And if you [ever come by|go there one day], [say hello to {H}|you may still meet {H} "
        "and {F}].",
        "[Everyone was happy.|All was well.|It was a happy evening.] [The end.|]",
    ]))


# ---------------------------------------------------------------------------------------------
# Plots. Each tells a whole story after the opening; `length` is how many scenes lie in between.
# ---------------------------------------------------------------------------------------------

def keepsake(s, use=None):
    use = use or s.pick(list(KEEPSAKES))
    nouns, looks = KEEPSAKES[use]
    noun, look = s.pick(nouns), s.pick(looks)
    s.set(t=f"{look} {noun}", tn=noun, use=use)


def give(s):
    """The elder gives the keepsake: the fact to remember."""
    s.tell(s.pick([
        'One [day|morning|evening], {E} [the {job} |]gave {H} a {t}. "[Keep it well|Take good '
        'care of it|It is small, but it is yours]," said {E}. "[One day you will need it|You '
        'will know when to use it|It helped me once, long ago]."',
        'On {Hhis} birthday, {H} got a {t} from {E}. "[It is not new|It is older than I am|It '
        'was in my drawer for years]," said {E}, "and now it is yours."',
        "{E} [the {job} |]lived [next door|down the road|across the field]. {H} had helped "
        "{Ehim} [in the garden|carry wood|find {Ehis} glasses|feed the hens], and {E} said, "
        '"[Here is something for you|This is for your kind heart]." It was a {t}.',
        '"Close your eyes," said {E} one [morning|day]. When {H} opened them again, there was a '
        '{t} in front of {Hhim}. "[A gift|For you]," said {E}, "because [you never forget a '
        'friend|you helped me when I was ill|you always listen to my stories]."',
    ]), s.pick([
        "{H} [said thank you|thanked {Ehim}] and [put the {tn} into {Hhis} bag|carried the {tn} "
        "everywhere].",
        "{H} had never owned [anything so fine|such a thing]. {Hhe} put it into {Hhis} bag.",
        '{H} showed it to {F}. "[Beautiful|How lovely|I like it]!" said {F}. Then {H} put it '
        "safely into {Hhis} bag.",
    ]))


TROUBLE = {
    "light": ["[Then|On the way home] it grew dark, much faster than {H} had thought. [There "
              "was no moon.|The trees became black shadows.] {Hhe} could not see {Hhis} own "
              'feet. "What now?" {Hhe} whispered.',
              "{H} [lit it|lit it with shaking hands], and a warm light fell on the path. [The "
              "shadows were only bushes.|The dark was not so big any more.|Even the owls looked "
              "friendly.]"],
    "sound": ["[Then|On the way home] a thick fog came. {H} [could not see the path|could not "
              "see {Hhis} own hand|did not know left from right]. {Hhe} called, but [nobody "
              "answered|the fog swallowed every word].",
              "With it {Hhe} made [a loud, clear sound|as much noise as {Hhe} could], again and "
              'again. [At last|After a while] a voice answered: it was {F}! "I heard you!" '
              'called {F}. "[Stay there, I am coming|This way]!"'],
    "tie": ["[Then|On the way home] {H} heard a cry. It was {F}! {F} had [fallen between the "
            'rocks|slipped into a deep hole|slid down the bank] and could not get out. "[Help '
            'me|Please help]!" called {F}.',
            '{H} tied one end to a tree and let the other end down. "[Hold on tight|Hold on]!" '
            "{H} called, and pulled and pulled, until {F} was [safe|free|up again]."],
    "shine": ["[Then|On the way home] {H} found {F} sitting by the road. {F} was [crying|very "
              "sad]. A magpie had taken {Fhis} [little bell|best ring|only key] and would not "
              "give it back.",
              '{H} held it up so that it [flashed|shone|sparkled] in the sun. "[Let us '
              'trade|Would you like this one instead]?" {Hhe} called. The magpie [could not '
              "resist|came down at once], took it, and dropped the other thing [into the "
              "grass|at {Fhis} feet]."],
    "hold": ["[Then|On the way home] {H} saw smoke. A [small fire|fire] was [burning in the dry "
             'grass|creeping towards the trees], and {F} was beating it with a branch. "[Water, '
             'quick|We need water]!" called {F}.',
             "{H} filled it in the stream and ran, again and again, [until the fire was "
             "out|until only a little smoke was left]. [Both of them were black with "
             'soot.|"Just in time," said {F}.]'],
    "heart": ["[Then|On the way home] {H} [lost the path|took a wrong turn]. [Everything looked "
              "strange.|The trees all looked the same.] {Hhe} felt very small and very alone, "
              "and [a tear ran down {Hhis} nose|{Hhe} wanted to cry].",
              "{H} held it tight. It was [warm|smooth and warm], like a [hand|little sun]. "
              '"[Someone thinks of me|I am not alone]," {H} thought, and [at once|slowly] {Hhe} '
              "grew calm. Then {Hhe} saw the smoke of {Hhis} own chimney [behind the trees|over "
              "the hill]."],
    "key": ["[Then|At the end of the path] {H} came to a [wall|hedge] with a small "
            "[wooden|iron|green] door in it. The door was locked. Behind it somebody was "
            "[singing|laughing|calling softly]. {H} [pushed|knocked], but [nothing moved|nobody "
            "came].",
            "It fitted! The door opened, and behind it was [a garden full of lights|a garden "
            "full of roses|the finest garden in the world]. In the middle sat {F}, [who had "
            "come over the wall and could not get back|who had fallen asleep under a tree]. "
            '"[At last|You found me]!" cried {F}.'],
}


def remember(s):
    """The keepsake and its giver return."""
    s.tell(s.pick([
        "Then {H} remembered the {*t} that {*E} had given {Hhim}.",
        "But {H} still had the {*t} in {Hhis} bag, the gift of {*E}.",
        'Then {Hhe} put {Hhis} hand into the bag and felt the {*t}. "[Of course|Thank you], '
        '{*E}!" said {H}.',
        '"[One day you will need it|You will know when]," {*E} had said. So {H} took out the '
        "{*t}.",
        "{H} thought of {*E}, and of the {*t} in {Hhis} bag.",
        "And what was in the bag? The {*t} from {*E}!",
    ]), TROUBLE[s.slots["use"]][1])


def thanks(s):
    if s.slots["use"] == "shine":
        s.tell("[The next day|That same evening] {H} told {*E} about the magpie and the {*t}. "
               '"[Are you angry that it is gone]?" asked {H}. "[No|Not at all]," said {E}. '
               '"[You gave it away for a friend, and that is the best use|A thing is worth what '
               'it does for a friend]."')
        return
    s.tell(s.pick([
        "[The next day|That same evening|As soon as {Hhe} was home], {H} went to see {*E}. "
        '"[Your gift helped me|I needed it today]," {H} said, and told {Ehim} about the {*t}. '
        '{E} [smiled|nodded slowly|wiped {Ehis} eyes]. "[I knew it would|I hoped so|Good]," '
        "{Ehe} said.",
        '[Later|At home] they drank [warm milk|tea] with {*E}. "[So the {*tn} was useful after '
        'all|What did I tell you]," said {E}[.|, and laughed.]',
        "{E} [was waiting at the door|had been worried]. {H} held up the {*tn} and {E} "
        "understood.",
    ]))


def plot_keepsake(s, length):
    keepsake(s)
    give(s)
    goal = s.fresh(PLACES)
    s.set(errand=s.fill("to be [home|back] before dark"))
    s.tell(s.pick([
        f"Some days later, {{H}} [set out for|wanted to go to] {goal}. [{{F}} could not come "
        'along.|"I will be back by evening," {Hhe} said to {F}.]',
        "[Not long after that|The week after], {H} had to [carry a letter to|bring something "
        f"to|fetch something from] {goal}. {{Hhe}} [went alone|left early].",
        "One [morning|day], {H} [took {Hhis} bag|packed {Hhis} bag] and walked towards "
        f'{goal}. ["Be careful," said {{F}}.|]',
    ]), WEATHER)
    journey(s, length)
    s.tell(TROUBLE[s.slots["use"]][0])
    remember(s)
    if s.chance(0.75):
        thanks(s)
    ending(s)


def plot_lost(s, length):
    keepsake(s, s.pick(["sound", "shine", "heart", "tie", "key"]))
    give(s)
    hide = s.pick(["under a cabbage leaf", "in a bird's nest", "at the bottom of the well",
                   "between two stones", "in the pocket of {Hhis} other coat", "behind the stove",
                   "in the hollow of a tree", "under the bench", "in the tall grass",
                   "in the basket with the wool"])
    s.set(hide=s.fill(hide))
    s.set(errand=s.fill("to find a {t}"))
    s.tell("[But one day|One evening|Then, one morning], the {t} was [gone|not there any more]. "
           "{H} looked [in the bag|under the bed|everywhere], [but found nothing|and then "
           "looked again].",
           '"[What will {E} say? |]I promised to take care of it," {Hhe} [thought|said]. {F} '
           '[said, "We will find it together."|said, "Think. Where have you been?"]')
    journey(s, length)
    helper = s.fresh(["magpie", "snail", "mole", "old toad", "crow",
                      "little girl from the mill", "kitten"])
    s.tell(f'[At last|In the end] they met a {helper}. "[Have you lost something|Are you '
           f'looking for something]?" asked the {helper}.',
           '"[Yes|Oh yes], a {*t}," said {H}. "It was a gift from {*E}."',
           f"\"[I saw something like that|I know where it is],\" said the {helper}, \"{{hide}}.\"")
    s.tell("They [ran|hurried] there, and [really|indeed], {hide} lay the {*t}! {H} [held it "
           "tight|danced with joy|laughed and cried at once].",
           "[{F} was as happy as if it were {Fhis} own.|\"I told you,\" said {F}.|]",
           f"To thank the {helper}, {{H}} [shared {{Hhis}} lunch|sang a song|told a story about "
           "{*E}].")
    ending(s, together=True)


def plot_gift(s, length):
    gift = s.fresh(GIFTS)
    s.set(gift=gift, g=bare(gift), far=s.fresh(PLACES))
    s.set(errand=s.fill("to bring the {g} to {E}"))
    s.tell(s.pick([
        'One morning, {Hhis} mother said, "{E} is ill. Please bring {Ehim} {gift}. {Ehe} lives '
        'beyond {far}."',
        '{E} lived all alone beyond {far}. "[It is {Ehis} birthday|I think {Ehe} is lonely]," '
        'said {H} to {F}. "I will bring {Ehim} {gift}."',
        "{H} had saved up for {gift}, and {Hhe} knew for whom: for {E}, who lived beyond {far}.",
    ]), '[It was a long way, but {H} was not afraid.|"I will not stop until I am there," {Hhe} '
        'said.|So {Hhe} set out.|"[Shall I come too|May I come]?" asked {F}. "[Stay and keep '
        'the house|Next time]," said {H}.]')
    journey(s, length)
    s.tell('[A fox|A stranger|A raven] [stopped {Hhim}|stood in the way]. "[What smells so '
           'good|What do you carry there]? [Give it to me|I would like to have it]."',
           '"[No|I am sorry]," said {H}. "[This is|It is] for {*E}, and [I have promised|it is '
           'not mine to give]."')
    s.tell("[Towards evening|At last] {H} [had left {far} behind|was beyond {far}] and knocked "
           'at a small door. {*E} opened. "[For me|You came all this way]?" {Ehe} said, when '
           "{Ehe} saw the {*g}.",
           '[{Ehe} laughed with joy.|Two tears ran down {Ehis} face.|"Nobody has thought of me '
           'for so long."]',
           "They sat by the stove, and [talked until it was dark|{E} told stories of the old "
           "days].")
    ending(s)


def plot_promise(s, length):
    s.set(far=s.fresh(PLACES), place=s.fresh(PLACES))
    now, then = s.pick([("the first star comes out", "the first star came out"),
                        ("the church bell rings six", "the church bell rang six"),
                        ("the lamp is lit at {far}", "the lamp was lit at {far}"),
                        ("the swallows fly home", "the swallows flew home"),
                        ("the ferry comes in", "the ferry came in"),
                        ("the moon stands over {far}", "the moon stood over {far}"),
                        ("the last bread leaves the oven", "the last bread left the oven"),
                        ("the owls wake up", "the owls woke up"),
                        ("the shops close", "the shops closed"),
                        ("the geese go to sleep", "the geese went to sleep")])
    s.set(now=s.fill(now), sign=s.fill(then))
    s.set(errand=s.fill("to go to {place} and be back in time"))
    s.tell('{F} had [a sore foot|a cold|hurt {Fhis} leg] and had to stay at home. "[Will you '
           'come and see me|Will you visit me tonight]?" {Fhe} asked. "Yes," said {H}. "Before '
           '{now}, I will be with you. I promise."',
           "But first {H} had to go to {place} [to fetch medicine|to buy flour|with a letter "
           "for {E}].")
    journey(s, length)
    s.tell('At {*place}, [there was music|a fair had come|children were dancing]. "[Stay with '
           'us|Come and dance]!" they called. [There was cake.|There was a man with a '
           "monkey.|There were lights in all the trees.] {H} [wanted to stay|had never seen "
           "anything so fine].",
           'But {Hhe} thought of {*F} and of {Hhis} promise. "[I have to go|Another time]," '
           "{Hhe} said, and ran.")
    s.tell("{H} ran [up the hill|over the bridge|down the lane] without a stop. [{Hhis} heart "
           "beat like a drum.|{Hhis} side hurt.]",
           'And just before {*sign}, {Hhe} knocked at the door. "[You came|You kept your '
           'word]!" cried {*F}.',
           '"[A promise is a promise|Of course]," said {H}, [still out of breath|and fell into '
           "a chair].")
    ending(s)


def plot_password(s, length):
    s.set(word=s.fresh(WORDS), place=s.fresh(PLACES))
    s.set(Word=s.slots["word"].capitalize())
    s.tell('{F} knew a secret. "[Behind|Below] {place} there is a [little house|cave|hidden '
           'garden]," {Fhe} whispered. "[A gnome|An old owl|A badger] guards the door. You must '
           "say the right word, and the word is '{word}'.\"",
           "\"{Word},\" {H} repeated. \"[I will not forget it|What a funny word].\"")
    s.set(errand="to find a secret door")
    s.tell("[The next day|On Sunday|When the weather was good] {H} set out to find it. [{F} "
           "would come later.|{F} had to stay at home that day.]")
    journey(s, length)
    s.tell("At last {H} came to {*place}. [There was the door, round and low.|Behind some ivy "
           'was a small door.] {Hhe} knocked. "Who is there?" asked a deep voice. "And what is '
           'the word?"',
           "{H} thought [hard|back]. What had {*F} said? \"[It is|The word is] '{*word}',\" "
           "said {H}.",
           '[The door opened without a sound.|"Come in, friend," said the voice.|Slowly the '
           "door swung open.]")
    s.tell("Inside [it was warm|a hundred candles burned|it smelled of apples]. [A table was "
           "laid for two.|There were books up to the roof.|There were flowers of every colour.] "
           '"[Stay as long as you like|Friends of {*F} are my friends]," said the voice.',
           "{H} [stayed until evening|looked at everything|had never been so happy]. And the "
           "word '{*word}' stayed a secret [for ever|between friends].")
    ending(s)


def plot_recipe(s, length):
    dish, stuff = s.pick(DISHES)
    a, b, c = s.random.sample(stuff, 3)
    s.set(dish=dish, a=a, b=b, c=c, nb=bare(b), nc=bare(c),
          Na=bare(a)[0].upper() + bare(a)[1:])
    s.set(errand=s.fill("to learn how to make {dish}"))
    s.tell('{E} was known for {Ehis} {dish}. "[Will you show me how|May I learn it]?" asked '
           '{H}. "[Gladly|Yes]," said {E}. "But three things are missing: {a}, {b} and {c}. Can '
           'you get them?"',
           "\"{Na}, {nb}, {nc},\" said {H} to {Hself}[, again and again|, so as not to forget].")
    for told, item in enumerate("abc"):
        if told < length:
            journey(s, 1)
        name = s.name(s.pick(["girl", "boy"]))
        job = s.fresh(JOBS)
        s.tell(s.pick([
            f'{name} the {job} had {{{item}}}. "[Take it|It is yours]," said {name}, "[if you '
            'sing for me|if you sweep my yard|and greet {E} from me]."',
            f"{{H}} got {{{item}}} from {name} the {job}, [for a song|for an hour of work|just "
            "for asking].",
            f"[At the market|In the next street] {{H}} met {name} the {job}, who gave {{Hhim}} "
            f"{{{item}}}.",
        ]))
    s.tell('[With a full bag|Tired but happy], {H} came back to {*E}. ["Have you got '
           'everything?"|"Let me see," said {E}.] {H} put it all on the table: {*a}, {*b} and '
           "{*c}.",
           "Then they [stirred|washed, cut and stirred], and soon the whole house smelled of "
           "{*dish}.",
           '{F} came [by|in] too, [of course|because of the smell]. "[May I have more|Is there '
           'any left]?" asked {F} [three times|with a full mouth].')
    ending(s)


def plot_race(s, length):
    prize = s.pick(["a golden apple", "a blue ribbon", "a big cake", "a silver cup",
                    "a red kite", "a straw hat", "a wooden horse", "a basket of pears"])
    s.set(prize=prize, n=s.pick(NUMBERS[4:13]), start=s.fresh(PLACES), goal=s.fresh(PLACES))
    s.set(p=prize[2:])
    s.set(errand=s.fill("to get to {goal}"))
    s.tell("Every [summer|year], there was a race from {start} to {goal}. The prize was "
           "{prize}. This time there were {n} runners, and {H} was [the smallest|one of "
           "them|the youngest].",
           '{E} [the {job} |]waved a flag. ["Ready, steady, go!"|"Run!"]',
           "{F} [shouted louder than anyone|stood by the road and clapped].")
    journey(s, length)
    rival = s.name(s.pick(["girl", "boy"]))
    s.set(rival=rival)
    s.tell("[Halfway|Just before the end], {H} saw {rival}, one of the runners, sitting on the "
           'ground. "[My foot|My knee]!" said {rival}. "[I cannot walk|It hurts]." [The others '
           "ran past.|Nobody else stopped.]",
           '{H} looked at the road, and then at {rival}. {Hhe} [stopped|turned back]. "Lean on '
           'me," {Hhe} said. So they walked, [slowly|step by step], all the way to {*goal}.')
    s.tell("They came in last of all {*n}. But [everybody clapped|nobody laughed]. {*E} came "
           '[over|up] and [gave {H} the {*p}|held out the {*p}]. "[The fastest gets there '
           "first, but the kindest gets the prize|Some win with their legs, and some with their "
           'hearts]," {Ehe} said.',
           "{H} [let {*rival} hold it first|went red with joy|looked at {F} and laughed].")
    ending(s)


def plot_storm(s, length):
    keepsake(s, "light")
    noun = s.pick(["lantern", "lamp"])
    s.set(tn=noun, t=s.slots["t"].rsplit(" ", 1)[0] + " " + noun)
    s.set(boat=s.pick(["Seagull", "Morning Star", "Anna", "Blue Whale", "Good Hope", "Swallow",
                       "Little Bear", "Silver Fish", "Wind Rose", "Old Lady"]), place=s.fresh([
                           "the harbour", "the lighthouse", "the sandy beach", "the mossy rocks"]))
    s.tell("{E} had a boat. It was called the {boat}, and it was [small and old|green and "
           "white|the fastest on the coast]. Every morning {Ehe} sailed out to fish, and every "
           "evening {H} waited for {Ehim} at {place}.",
           'Once {E} had given {H} a {t}. "[When you wave it, I can see it from far away|It can '
           'be seen from far out]," {Ehe} had said.')
    s.set(errand=s.fill("to see the boat of {E} come home"))
    s.tell("One day, {E} sailed out as always. {H} [had the whole day for {Hself}|and {F} had "
           "the day to play].")
    journey(s, length)
    s.tell("[In the afternoon|Towards evening], the sky [turned black|grew dark]. A storm! [The "
           "waves were as high as houses.|Thunder rolled over the water.] {H} and {F} ran to "
           "{*place}. The {*boat} was [not back|still out].",
           '"[How will {*E} find the way home|Can {*E} still see the shore]?" asked {F}. Then '
           "{H} remembered the {*t}. {Hhe} ran and fetched it.")
    s.tell("{H} lit the {*tn} and held it high, [in the wind and the rain|for an hour, for "
           "two]. [{Hhis} arms hurt.|When {Hhis} arms hurt, {F} took over.]",
           "And then, [between two waves|far out], there was a sail: the {*boat}! [Slowly it "
           "came nearer.|It steered straight for the light.]",
           '"[I saw your light|You lit my way home]," said {*E}, wet from head to foot, and '
           "took them both in {Ehis} arms.")
    ending(s, together=True)


def plot_learn(s, length):
    verb, doing = s.pick(SKILLS)
    s.set(verb=verb, doing=doing, advice=s.pick(ADVICE))
    s.tell("{H} could do many things, but {Hhe} could not {verb}. {F} could {verb} [very "
           "well|without even trying]. [{H} tried and tried.|Each time {H} tried, it went "
           'wrong.|"I will never learn it," said {H}.]',
           "So {H} went to {E} [the {job} |]and asked for help. {E} [thought for a "
           'while|smiled]. "{advice}," {Ehe} said. "[That is all I know|That is the whole '
           'secret]."')
    s.set(errand=s.fill("to learn how to {verb}"))
    s.tell('[{H} did not understand|It sounded too simple]. "[Is that all|Nothing else]?" {Hhe} '
           "asked. But {E} had [already gone back to work|said all {Ehe} wanted to say]. {H} "
           "[went home slowly|took the long way home].")
    journey(s, length)
    s.tell("[The next morning|That evening], {H} tried again, and again it [went wrong|did not "
           "work]. {Hhe} was about to give up. Then {Hhe} remembered the words of {*E}: "
           '"{*advice}."',
           "{H} [closed {Hhis} eyes|stood still|waited a moment] and tried once more. [And this "
           "time|Slowly, slowly], it worked! {Hhe} could {*verb}!")
    s.tell('[{F} came running|{F} could not believe it]. "You can {*verb}!" {Fhe} cried. "[Who '
           'taught you|How did you do it]?"',
           '"{*E} did," said {H}, "with [one sentence|a few words]." And [from then on|all '
           "summer] the two friends practised together every day.")
    ending(s)


def plot_sharing(s, length):
    fruit = s.pick(FRUIT)
    start = s.pick([4, 5, 6])
    s.set(fruit=fruit, n=NUMBERS[start])
    s.set(errand=s.fill("to show {F} my {fruit}"))
    s.tell('{E} [the {job} |]gave {H} a basket with {n} {fruit}. "[They are all for you|Eat '
           'them or share them]," said {E}. "[It is up to you|Do as you like]."',
           "{H} [counted them|counted them twice]: [yes,|] {n}. {Hhe} wanted to show them to "
           "{F}, and set out.")
    left = start
    askers = ["a hungry mouse", "an old man on a bench", "a girl with a crying baby",
              "a tired messenger", "a boy who had lost his lunch", "a thin donkey",
              "a woman with a heavy sack", "a lonely goose"]
    done = 0
    while left > 2:
        if done < length and s.chance(0.6):
            journey(s, 1)
            done += 1
        asker = s.fresh(askers)
        left -= 1
        s.set(left=NUMBERS[left])
        s.tell(s.pick([
            f'[Then|On the way|Next] {{H}} met {asker}. "[May I have one|Please, one for me]?" '
            "{H} gave one away. Now there were {left} {fruit}.",
            f"By the road was {asker}. {{H}} [did not think long|opened the basket] and gave "
            "away one of the {fruit}. That left {left}.",
            f'"[May I taste one|What have you got there]?" asked {asker}. {{H}} shared again, '
            "and {left} {fruit} were left.",
        ]))
    s.tell('At last {H} came to {*F}. "[{E} gave me {*n} {fruit}|This morning I had {*n}]," '
           '{Hhe} said, "and now there are two. One for you, and one for me."',
           '"[That is just enough|Two is perfect]," said {F}. They ate [in the sun|side by '
           "side], and never had {*fruit} tasted so good.",
           '[The next day|In the evening] {*E} asked, "Did you like the {*fruit}?" "[The two of '
           'them were the best of all|Everybody did]," said {H}.')
    ending(s)


def plot_seed(s, length):
    plant, bloom = s.pick([("an apple tree", "apples"), ("a cherry tree", "cherries"),
                           ("a rose bush", "roses"), ("a sunflower", "seeds"),
                           ("a pear tree", "pears"), ("a walnut tree", "nuts"),
                           ("a lilac", "flowers"), ("a pumpkin plant", "pumpkins")])
    s.set(plant=plant, bloom=bloom, place=s.pick([
        "behind the house", "by the gate", "next to the well", "on the hill", "beside the path",
        "near the pond"]))
    s.tell('{E} [the {job} |]gave {H} a seed. "[What will it be|What is it]?" asked {H}. '
           '"{plant}," said {E}, "[if you are patient|but it takes its time]."',
           "{H} [dug a hole|made a small hole] {place}, put the seed in, and watered it every "
           "day. {F} helped [with a little can|when it was hot].")
    s.set(errand=s.fill("to grow {plant}"))
    s.tell('But nothing [happened|could be seen]. A week went by, and then a month. "[Maybe it '
           'is asleep|Maybe it has forgotten]," said {F}. {H} [waited|did not give up]. To pass '
           "the time, {Hhe} [often|] went for long walks.")
    journey(s, length)
    s.tell("Then, [one spring morning|after a warm rain], there was something green {*place}. "
           '[It was no bigger than a fingernail.|Two tiny leaves!] "[Look|Come quickly], {*F}!" '
           'shouted {H}. "It is awake!"',
           "It grew, [slowly|a little every day], and the years went by, and {H} grew too. In "
           "the end it really was {*plant}, [as tall as the house|taller than {H}|the finest "
           "far and wide], just as {*E} had said.")
    s.tell("[When it was full of {*bloom}|The first time there were {*bloom}], {H} took the "
           'best of them to {*E}. "[Do you remember the seed|You gave me this]?" {Hhe} asked.',
           '"[I remember|How could I forget]," said {E}. "[Good things take their time|You did '
           'the waiting, and that is the hard part]."')
    ending(s)


def plot_message(s, length):
    n = s.pick(NUMBERS[2:10])
    msg = s.pick([
        f"the {s.pick(COLOURS)} {s.pick(['boat', 'cart', 'coat', 'door', 'kite', 'barn'])} is "
        "ready",
        f"the {s.pick(['goose', 'cat', 'hen', 'dog', 'goat'])} has {n} little ones",
        f"the {s.pick(['cherries', 'plums', 'pears', 'beans'])} are ripe",
        f"the party is on {s.pick(['Monday', 'Tuesday', 'Friday', 'Saturday', 'Sunday'])}",
        f"the bread will be done at {n}",
        f"the {s.pick(['clock', 'wheel', 'stove', 'pump', 'roof'])} is mended",
        f"the swans have come back to the {s.pick(['lake', 'river', 'pond'])}"])
    other_female = s.chance(0.5)
    s.person("R", s.name("girl" if other_female else "boy"), other_female)
    s.set(msg=msg, rjob=s.fresh(JOBS), place=s.fresh(PLACES))
    s.set(errand=s.fill("to find {R} the {rjob}"))
    s.tell('{E} [called {H} to the fence|stopped {H} in the lane]. "[Can you take a '
           "message?|You have quick feet.] [Go to|Please find] {R} the {rjob}, near {place}, "
           'and say: {msg}. [Will you remember that?|Say it just like that.]"',
           '"[Of course|I will]," said {H}. [{Hhe} said it over three times.|{Hhe} made a '
           "little song of it.|]")
    journey(s, length)
    s.tell('[Finally|At last], near {*place}, {H} found {*R} the {*rjob}. "[I have a message '
           'for you|I come from {*E}]," said {H}. {Hhe} [took a deep breath|stood up straight]. '
           '"{E} says: {*msg}."',
           '"[That is the best news|At last|How wonderful]!" said {R}, and [laughed|clapped '
           "{Rhis} hands|threw {Rhis} hat into the air].")
    s.tell('[Back home|In the evening], {E} asked, "Did you find {*R}?" "[Yes, I did|Yes, '
           'everything went well]," said {H}. "I did not forget a word: {*msg}."',
           "{F} [was proud of {Hhim}|wanted to hear the whole way].")
    ending(s)


def plot_map(s, length):
    a, b, c = s.random.sample(LANDMARKS, 3)
    steps = s.pick(NUMBERS[3:13])
    s.set(a=a, b=b, c=c, steps=steps)
    box = s.pick(["a tin box", "a wooden chest", "a clay pot", "a leather bag", "a glass bottle"])
    s.set(box=box, bx=box[2:])
    s.tell('{E} was very old and knew many things. "[Long ago|When I was young], I buried '
           '{box}," {Ehe} told {H}. "Go first to {a}, then to {b}, and then to {c}. From there '
           'take {steps} steps [north|to the south|towards the sun], and dig."',
           '{H} told it [at once|] to {F}. "[A treasure|A real treasure]!" said {F}. They [took '
           "a spade|fetched a shovel] and went.")
    s.set(errand=s.fill("to find {box}"))
    s.tell("[The first thing was easy|It began well]: there stood {a}[, just as {E} had said|].",
           WEATHER)
    journey(s, (length + 1) // 2)
    s.tell('[After some searching|Soon after], they found the second sign, {*b}. "[And now|What '
           'comes next]?" asked {F}. "[We must go to|Now we need] {*c}," said {H}.')
    journey(s, length // 2)
    s.tell("And there [was|they saw] {*c}! {H} [walked|counted] {*steps} steps, and {F} began "
           "to dig. [The earth was hard.|It took a long time.] Then the spade hit something: "
           "{*box}!",
           "[Inside lay|In it was] [an old photograph|a letter|a picture], and on it stood: "
           '"The best treasure is a friend to look for it with. [{*E}|Yours, {*E}]."',
           "{H} and {F} looked at each other [and laughed|for a long time]. [{E} was right.|It "
           "was true.]")
    ending(s, together=True)


def plot_stray(s, length):
    baby = s.fresh(["kitten", "puppy", "lamb", "duckling", "owl chick", "little goat",
                    "baby hedgehog", "small bear"])
    baby_female = s.chance(0.5)
    s.person("B", s.name("animal"), baby_female)
    door = s.pick(DOORS)
    s.set(baby=baby, door=door, tree=s.pick(["apple tree", "pear tree", "chestnut tree", "pine",
                                             "willow", "cherry tree", "birch"]))
    s.tell("One [morning|evening], {H} heard [a thin voice|somebody crying] [behind the "
           'house|in the grass|near the path]. It was a {baby}, [wet and cold|all alone]. "I am '
           '{B}," said the {baby}. "I cannot find my way home."',
           '"[Do not cry|We will find it]," said {H}. "What does your home look like?" {B} '
           '[thought|sniffed]. "It has a {door} door, and in front of it stands a {tree}."')
    s.set(errand=s.fill("to find a house with a {door} door"))
    s.tell("So {H} took {B} [along|under {Hhis} coat], and together they went to look for it. "
           "[{F} came too.|{F} looked in the other direction.]")
    journey(s, length)
    s.set(other=s.pick([d for d in DOORS if d != door]))
    s.tell("They saw many houses. One had a {other} door, but no tree. One had a tree, but [no "
           "door at all|the wrong door]. {B} [grew tired|yawned].",
           "Then, [round a corner|behind a hill], {H} [stopped|stood still]. There was a house "
           "with a {*door} door, and in front of it stood a {*tree}.")
    s.tell('"[Home|There it is]!" cried {*B}. The door flew open, and out came [{Bhis} '
           'mother|{Bhis} whole family]. "[{B}! Where have you been|We looked everywhere]!"',
           '"[Thank you|You will always be welcome here], {*H}," [they said|said the mother]. '
           "And the {*baby} [waved until {H} was out of sight|gave {H} a kiss on the nose].")
    ending(s)


def plot_mend(s, length):
    broken, part = s.pick([("clock", "wheel"), ("clock", "spring"), ("fiddle", "string"),
                           ("fiddle", "peg"), ("music box", "spring"), ("music box", "cog"),
                           ("chair", "screw"), ("chair", "nail"), ("cart", "wheel"),
                           ("kite", "hook"), ("weather vane", "screw"), ("lamp", "hook"),
                           ("doll's house", "hook"), ("boat", "nail"), ("piano", "string"),
                           ("spinning wheel", "peg")])
    look = s.pick(["brass", "tiny", "iron", "silver", "long", "copper", "wooden", "bent"])
    female = s.chance(0.5)
    s.person("R", s.name("girl" if female else "boy"), female)
    s.set(broken=broken, part=f"{look} {part}", pn=part, rjob=s.fresh(JOBS), place=s.fresh(PLACES))
    s.set(errand=s.fill("to find a {part} for {E}"))
    s.tell("{E} had a [wonderful|very old] {broken}. One day it [broke|would not work any "
           'more], and {E} [was very sad|did not laugh for a week]. "It needs a {part}," {Ehe} '
           'said, "[and nobody sells them any more|and I am too old to look for one]."',
           '"[I will find one|Leave it to me]," said {H}. {F} [had heard|knew] that {R} the '
           "{rjob}, near {place}, had such things.")
    journey(s, length)
    s.tell("[So|At last] {H} [stood in the workshop of|came to] {*R} the {*rjob}. [It was full "
           'of boxes.|There were drawers up to the ceiling.] "[What can I do for you|What do '
           'you need]?" asked {R}.',
           '"A {*part}," said {H}, "for the {*broken} of {*E}." {R} [looked in every '
           'drawer|searched for a long time]. "[Here|My last one]!" {Rhe} said. "[Take it|Pay '
           'me with a smile]."')
    s.tell("{H} [ran|hurried] home. {E} put the {*pn} in its place, [held {Ehis} breath|stepped "
           "back], and the {*broken} was [as good as new|whole again].",
           "[{F} clapped.|{E} laughed for the first time in days.|They all cheered.]")
    ending(s)


def plot_shy(s, length):
    like = s.pick(["old maps", "beetles", "thunder", "paper boats", "the stars", "pickles",
                   "drums", "snow", "owls", "puzzles", "trains", "mushrooms", "clouds", "shells"])
    female = s.chance(0.5)
    s.person("R", s.name("girl" if female else "boy"), female)
    s.set(like=like, child="girl" if female else "boy", from_=s.fresh(PLACES))
    s.tell("A new family moved in near {from_}. There was a {child} [named|called] {R}, who "
           "never said a word.",
           '"{R} is not very friendly," said some. {H} was not so sure. {E} told {H}, "[I once '
           'heard that {Rhe} loves|All I know is that {Rhe} likes] {like}."')
    s.set(errand=s.fill("to make friends with {R}"))
    s.tell('{H} [thought about it|wondered what to do]. [{F} had no idea either.|"Just say '
           'hello," said {F}.] So {H} went for a long walk [to think|to find an answer].')
    journey(s, length)
    s.tell("On the way back, near {*from_}, {H} saw {*R} sitting on a wall. {H} sat down beside "
           "{Rhim}. [For a while nobody spoke.|They looked at their feet.]",
           '"Do you like {*like}?" asked {H}. {R} [looked up|turned {Rhis} head]. "[Yes|Very '
           'much]," {Rhe} said softly. "[How did you know|Do you, too]?"')
    s.tell("And then {R} talked and talked about {*like}, until [the sun went down|it was time "
           'for supper]. "[Shall we meet tomorrow|Will you come again]?" asked {R}.',
           '"[Yes|Of course]," said {H}, "and {*F} will come too." [So two became three.|{*E} '
           "saw them from the window and smiled.]")
    ending(s)


def plot_guard(s, length):
    kind = s.pick(["hens", "goats", "geese", "rabbits", "ducks", "sheep", "ponies"])
    one = {"hens": "hen", "geese": "goose", "sheep": "sheep", "ponies": "pony"}.get(kind, kind[:-1])
    a, b, c = (s.name("animal") for _ in range(3))
    s.set(kind=kind, one=one, a=a, b=b, c=c, place=s.fresh(PLACES))
    s.set(errand=s.fill("to find a {one} called {c}"))
    s.tell('{E} [the {job} |]had to go to town. "[Will you look after|Can you watch] my three '
           '{kind}?" {Ehe} asked {H}. "They are called {a}, {b} and {c}, and they love to [run '
           'away|hide]." "[You can count on me|I will]," said {H}.',
           "[All morning it went well.|At first they were very good.] {F} [helped|came to see "
           "them].")
    s.tell("Then {H} counted: {a} was there, {b} was there, but {c} was gone! [The gate stood "
           'open.|There was a hole in the fence.] "[Stay with the others|Watch the others], '
           '{F}!" called {H}, and ran to look for {c}.')
    journey(s, length)
    s.tell("[At last|Finally], near {*place}, {H} heard a small sound. There, [in the middle of "
           'the flowers|behind a stone|on top of a wall], sat {*c}! "[There you are|I was '
           'worried about you]," said {H}. The {*one} [looked very innocent|only said something '
           "short].",
           "[{H} carried {*c} all the way home.|Side by side they walked home.]")
    s.tell("When {*E} came back in the evening, all three were there: {*a}, {*b} and {*c}. "
           '"[Was everything all right|Were they good]?" {Ehe} asked. {H} looked at {F}. '
           '"[Mostly|More or less|Nearly]," {Hhe} said.',
           "{E} [laughed|understood], and gave them [pancakes|a big piece of cake|cocoa].")
    ending(s)


def plot_trade(s, length):
    wish = s.pick(["kite", "flute", "ball", "fishing rod", "book about whales",
                   "pair of skates", "red wagon", "globe", "puppet", "telescope"])
    chain = s.random.sample(["a bag of marbles", "a pot of honey", "a straw basket",
                             "an old umbrella", "a woollen cap", "a bunch of carrots",
                             "a wooden spoon", "a pink shell", "a ball of wool",
                             "a jar of pickles", "a drawing of a horse", "a bag of nuts"], 3)
    s.set(wish=wish, a=chain[0], b=chain[1], c=chain[2])
    s.set(na=bare(chain[0]), nb=bare(chain[1]), nc=bare(chain[2]))
    s.set(errand=s.fill("to get a {wish} for {F}"))
    s.tell('Soon it would be the birthday of {F}. "What {Fhe} wants most is a {wish}," said '
           '{E}. But {H} had no money. All {Hhe} had was {a}. "[That is a start|Then trade]," '
           'said {E}. "[Someone always needs what you have|Go and ask around]."')
    told = 0
    for have, get in (("na", "b"), ("nb", "c"), ("nc", "wish")):
        if told < length:
            journey(s, 1)
        told += 1
        name, job = s.name(s.pick(["girl", "boy"])), s.fresh(JOBS)
        goods = "a {wish}" if get == "wish" else "{" + get + "}"
        s.tell(s.pick([
            f'{name} the {job} [needed|wanted] the {{*{have}}}. "[Let us trade|I will trade '
            f'with you]," said {name}. "I can give you {goods}."',
            f"{{H}} met {name} the {job}, who had {goods} and liked the {{*{have}}}. So they "
            "[traded|swapped].",
            f'"Is that the {{*{have}}} I have been looking for?" asked {name} the {job}, and '
            f"gave {goods} for it.",
        ]))
    s.tell("On the birthday, {H} [knocked at the door|hid something behind {Hhis} back]. "
           '"[Happy birthday|For you], {*F}!" It was the {*wish}. {F} [could not say a '
           'word|jumped as high as the table]. "How did you get it?" asked {F}.',
           "\"It began with {*a},\" said {H}, \"and [a word|some advice] from {*E}.\"")
    ending(s, together=True)


def plot_night(s, length):
    s.set(place=s.fresh(PLACES), n=s.pick(NUMBERS[3:11]))
    s.set(song=s.pick(["The Moon Has Silver Shoes", "Little Boat, Go Slowly", "Seven Sheep",
                       "The Sleepy Hill", "Snow on the Roof", "Good Night, Old Bear",
                       "The Wind and the Willow", "One Star, Two Stars"]),
          errand="to find out where the night begins")
    s.tell("{H} was afraid of the dark. Every evening, when the lamp went out, [the corners "
           'grew|the shadows moved]. {F} [did not understand it|was never afraid]. "[The dark '
           'is only the day with its eyes shut|Nothing is there that was not there before]," '
           "said {F}.",
           '{E} [the {job} |]had better advice. "When I was small, I sang a song," said {E}. '
           "\"It is called '{song}', and you must sing it {n} times.\" \"Only {n} times?\" "
           'asked {H}. "[I will try|That is easy to remember]."')
    s.tell("The next day {H} wanted to know where the night begins. So {Hhe} walked towards "
           "{place}.")
    journey(s, length)
    s.tell("[And then|Before {H} knew it] the sun was gone, and {H} was still near {*place}. It "
           "was dark, really dark. [Something cracked.|Something rustled.] {Hhis} heart beat "
           "fast. Then {Hhe} thought of {*E}, and began to sing '{*song}', first very softly.",
           "[Once, twice, three times.|{Hhe} counted carefully.] And when {Hhe} had sung it "
           "{*n} times, [an owl sang along|the dark was full of stars|a cricket clapped].")
    s.tell('{H} walked home under the stars and was not afraid. "Where have you been?" asked '
           '{F}. "[In the dark|Outside]," said {H}. "[It is quite nice there|You were right, '
           'and so was {*E}]."')
    ending(s, together=True)


def plot_question(s, length):
    question, answers = s.pick([
        ("the softest thing in the world", ["moss", "snow", "the nose of a horse", "sleep",
                                            "a kitten", "bread", "flour", "a cloud"]),
        ("the oldest thing in the world", ["the sea", "a stone", "the wind", "hunger",
                                           "the moon", "a song", "the dark"]),
        ("the loudest thing in the world", ["thunder", "a waterfall", "a baby", "a lie",
                                            "the sea", "a bell", "an empty stomach"]),
        ("the best smell in the world", ["rain", "new bread", "old books", "hay", "the sea",
                                         "oranges", "clean sheets"]),
        ("the fastest thing in the world", ["light", "a swallow", "a thought", "a rumour",
                                            "the wind", "a hare", "summer"]),
        ("the most useful thing in the world", ["string", "a spoon", "a bucket", "patience",
                                                "a good knife", "soap", "a friend"]),
    ])
    a, b, c = s.random.sample(answers, 3)
    s.set(question=question, a=a, b=b, c=c, errand=s.fill(f"to know what is {question}"))
    s.tell('"What is {question}?" asked {F} one [morning|day]. {H} did not know. [Nor did '
           '{E}.|Even {E} did not know.] "[Ask three people, and you will get four answers|The '
           'world is full of people you can ask]," said {E}.',
           "So {H} [went to find out|set out to ask].")
    told, names = 0, []
    for key in "abc":
        if told < length:
            journey(s, 1)
        told += 1
        name, job = s.name(s.pick(["girl", "boy"])), s.fresh(JOBS)
        names.append(name)
        s.set(**{"n" + key: name})
        s.tell(s.pick([
            f'{{H}} asked {name} the {job}. "[That is easy|Let me think|I know it well]," said '
            f'{name}. "It is {{{key}}}."',
            f'"What is {{*question}}?" {{H}} asked {name} the {job}. "{{{key}}}!" said {name} '
            "[at once|after a while|without looking up].",
            f'{name} the {job} [laughed|put down the work] when {{H}} asked. "[I would say|If '
            f'you ask me], {{{key}}}," said {name}.',
        ]))
    s.tell('In the evening {H} came back to {*F}. "{*na} says it is {*a}, {*nb} says it is '
           '{*b}, and {*nc} says it is {*c}," {Hhe} told {Fhim}.',
           '"[And what do you say|And you], {*H}?" asked {F}. {H} [thought about it|looked at '
           'the sky]. "[I think it is different for everyone|I say it is good to have someone '
           'who asks]," {Hhe} said.')
    ending(s, together=True)


def plot_snow(s, length):
    what = s.pick(["snowman", "snow bear", "snow queen", "snow giant"])
    c1, c2 = s.random.sample(COLOURS, 2)
    nose = s.pick(["a carrot", "a pine cone", "a potato", "a chestnut", "a red pepper", "a cork"])
    hat = f"{c1} {s.pick(['hat', 'cap', 'bucket', 'pot'])}"
    scarf = f"{c2} {s.pick(['scarf', 'shawl', 'ribbon'])}"
    s.set(what=what, hat=hat, scarf=scarf, nose=nose, bare=nose[2:],
          errand="to be outside in the snow")
    s.set(name=s.name("animal"))
    s.tell("In the night it had snowed. [Everything was white and quiet.|The whole world wore a "
           "white coat.] {H} and {F} built a {what}. It got {nose} for a nose. {E} brought a "
           '{hat}, and {F} gave it a {scarf}. "[Its name is|We will call it] {name}," said {H}.',
           '"[Good night|See you tomorrow], {name}," they said [in the evening|when it got '
           "dark].")
    s.tell("The next morning {name} was gone! Nothing was left, only [footprints|big round "
           'tracks] in the snow. "It has gone for a walk," said {F}. {H} followed the tracks.')
    s.set(errand=s.fill("to find a {what} called {name}"))
    journey(s, length)
    s.tell("[At last|Behind the last hill] {H} saw something white, with a {*hat} on its head "
           'and a {*scarf} around its neck. "{*name}!" called {H}. The {*what} turned around. '
           '"[I only wanted to see the world|I wanted to see the stars from up here]," it said, '
           "and its nose, the {*bare}, [shook with joy|was a little crooked].",
           '"Are you coming back?" asked {H}. "[When the sun is strong, I must go north|In '
           'winter I will always come]," said {*name}. [They waved until they could not see '
           "each other.|And it gave {H} a cold, careful hug.]")
    s.tell("{H} told {F} and {*E} what the {*what} had said. [From then on they left the gate "
           "open in winter.|{F} believed every word.]")
    ending(s, together=True)


def plot_naming(s, length):
    pet = s.pick(["foal", "kitten", "puppy", "calf", "lamb", "duckling", "young donkey"])
    look = s.pick(["black", "white", "brown", "grey", "spotted", "golden"])
    mark = s.pick(["a white star on its forehead", "one white foot",
                   "one ear up and one ear down", "very long legs", "a dark stripe on its back",
                   "eyes like honey", "a crooked tail", "a spot like a heart"])
    female = s.chance(0.5)
    s.person("B", s.name("animal"), female)
    s.set(pet=pet, look=look, mark=mark.replace("its", s.slots["Bhis"]),
          errand="to find a good name", wrong=s.fresh(PETS), other=s.fresh(PETS))
    s.tell('{E} [the {job} |]had a new {pet}. {Bhe} was {look}, with {mark}. "[You may name '
           '{Bhim}|Find a good name for {Bhim}]," said {E} to {H}. "[Take your time|A name is '
           'for a whole life]."',
           '"What about {B}?" said {F} [right away|at once]. But {H} [was not sure|wanted to '
           "think about it]. {Hhe} went out to look for a name.")
    journey(s, length)
    name, job = s.name(s.pick(["girl", "boy"])), s.fresh(JOBS)
    s.tell(f'{{H}} asked everyone. "{{wrong}}," said {name} the {job}. "{{other}}," said [a '
           "passing goose|a man with a ladder|two children]. [None of them was right.|They were "
           "nice names, but not the right ones.]")
    s.tell("When {H} came back, the {*look} {*pet} was lying in the straw, with {*mark}. "
           '"{wrong}?" said {H}. Nothing. "{other}?" Nothing. Then {Hhe} remembered what {*F} '
           'had said at the very beginning. "{*B}?"',
           "The {pet} [jumped up|lifted {Bhis} head|came running], and [licked {Hhis} "
           'nose|pushed against {Hhim}]. "[Then it is {*B}|Welcome, {*B}]," said {*E}.')
    s.tell('"[I told you so|I knew it]," said {F}. "[Yes, you did|Sometimes the first idea is '
           'the best]," said {H}.')
    ending(s, together=True)


def plot_bottle(s, length):
    female = s.chance(0.5)
    s.person("R", s.name("girl" if female else "boy"), female)
    s.set(scarf=f"{s.pick(COLOURS)} {s.pick(['scarf', 'coat', 'hat', 'cap', 'jacket'])}",
          dog=s.name("animal"),
          animal=s.pick(["dog", "parrot", "cat", "goose", "monkey"]), n=s.pick(NUMBERS[6:12]),
          place=s.fresh(["the harbour", "the little station", "the ferry", "the crossroads",
                         "the market square"]))
    s.set(errand=s.fill("to meet somebody I have never seen"))
    s.tell("{H} found a bottle [in the reeds|on the shore|in the stream]. There was a letter in "
           'it! "[Dear finder|Hello, whoever you are]," it said, "my name is {R}. I am {n} '
           'years old, and I have a {animal} called {dog}. [Please write to me|Please answer]."',
           "{H} [wrote back the same day|answered at once], and {E} helped with the long words. "
           "[Many letters went back and forth.|So they wrote to each other, all winter long.]")
    s.tell('In spring {R} wrote, "I am coming! We will meet at {place}. You will know me by my '
           '{scarf}." {H} read it to {F} [three times|out loud]. On the [great|right] day {Hhe} '
           "set out early.")
    journey(s, length)
    s.tell("At {*place} there were [so many people|a hundred people]. How could {H} find {*R}? "
           "[There was a green coat, there a red one.|Everybody was in a hurry.] Then {Hhe} saw "
           "a {*scarf}, and next to it a {*animal}.",
           '"{*dog}!" called {H}. The {animal} [turned around|pricked up its ears|came '
           'running]. "[You must be|So you are] {*H}!" cried {*R}, and [they laughed|they '
           "hugged|they both talked at once].")
    s.tell("{H} showed {R} everything, and {F} [and {*E}|] came too. [{R} stayed for a "
           'week.|They sat in the grass until the stars came out.] "[It is good that bottles '
           'can swim|The sea is a good postman]," said {R}.')
    ending(s, together=True)


def plot_quarrel(s, length):
    noun = s.pick(["kite", "swing", "sledge", "boat", "raft", "wagon", "tent", "hut", "seesaw"])
    s.set(t=f"{s.pick(COLOURS)} {noun}", tn=noun, place=s.fresh(PLACES),
          errand="to be alone for a while")
    s.set(words=s.pick(["Two can carry what one cannot",
                        "Who waits for the other to begin waits long",
                        "A small sorry opens a big door", "It is lonely to be right alone",
                        "The same sun shines on both sides of the fence"]))
    s.tell("{H} and {F} had built a {t} together, [all by themselves|with a little help from "
           '{E}]. But whose was it? "[Mine|It is mine]," said {H}. "[No, mine|I had the idea]," '
           "said {F}. They [shouted|grew louder and louder], and then nobody said a word any "
           "more.",
           '{E} [the {job} |]had heard it all. "{words}," {Ehe} said, [and went on working|and '
           "nothing else]. {H} [did not want to hear it|turned around] and walked away, towards "
           "{place}.")
    journey(s, length)
    s.tell("Near {*place}, {H} sat down. [Two sparrows shared a crumb.|Two snails sat under one "
           'leaf.|An old couple walked by, hand in hand.] "{*words}," {*E} had said. [What good '
           "was the {*t}, without anyone to laugh with?|{H} thought of {*F}.]",
           "{Hhe} [jumped up|stood up] and ran all the way back.")
    s.tell('Halfway {Hhe} bumped into {*F}, who had been running too. "[I am sorry|I was '
           'wrong]!" said both [at the same time|at once]. [They had to laugh.|Then they '
           "laughed until it hurt.]",
           '"The {*t} is yours," said {H}. "No, yours," said {F}. [And they nearly quarrelled '
           "again.|So it belonged to both.]")
    ending(s, together=True)


PLOTS = [(plot_keepsake, 6), (plot_lost, 3), (plot_gift, 2), (plot_promise, 2),
         (plot_password, 2), (plot_recipe, 2), (plot_race, 2), (plot_storm, 2), (plot_learn, 2),
         (plot_sharing, 2), (plot_seed, 2), (plot_message, 2), (plot_map, 2), (plot_stray, 2),
         (plot_mend, 2), (plot_shy, 2), (plot_guard, 2), (plot_trade, 2), (plot_night, 2),
         (plot_question, 2), (plot_snow, 2), (plot_naming, 2), (plot_bottle, 2),
         (plot_quarrel, 2)]


def story_with_probes(seed, joined=True):
    """One story and its probes [(offset, words that stand there)]."""
    s = Story(seed)
    plot = s.random.choices([p for p, _ in PLOTS], [w for _, w in PLOTS])[0]
    s.winter = plot is plot_snow
    cast(s)
    opening(s)
    length = s.random.choices([0, 1, 2, 3], [2, 4, 5, 2])[0]
    plot(s, length)
    return s.finish(joined)


def story(seed, joined=True):
    return story_with_probes(seed, joined)[0]


def main():
    parser = argparse.ArgumentParser(description="Print generated stories.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=3)
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.count):
        print(story(seed))
        print("-" * 20)


if __name__ == "__main__":
    main()
