"""Slots of a profile, and the words by which their values are told from others: languages, occupations, allergens."""

from __future__ import annotations


def _each(words: str) -> frozenset[str]:
    return frozenset(each.replace("_", " ") for each in words.split())


LANGUAGES = _each("""
    afrikaans albanian amharic arabic armenian azerbaijani basque belarusian bengali bosnian breton bulgarian
    burmese cantonese catalan chinese cornish corsican creole croatian czech danish dari dutch english esperanto
    estonian farsi filipino finnish flemish french frisian gaelic galician georgian german greek gujarati hausa
    hawaiian hebrew hindi hungarian icelandic igbo indonesian irish italian japanese kannada kazakh khmer korean
    kurdish kyrgyz lao latin latvian lithuanian luxembourgish macedonian malay malayalam maltese mandarin maori
    marathi mongolian nepali norwegian pashto persian polish portuguese punjabi quechua romani romanian russian
    samoan serbian sinhala slovak slovene slovenian somali spanish swahili swedish swiss_german tagalog tajik tamil
    telugu thai tibetan tigrinya turkish turkmen ukrainian urdu uyghur uzbek vietnamese welsh xhosa yiddish yoruba
    zulu asl bsl
""")

OCCUPATIONS = _each("""
    accountant actor actress actuary administrator agronomist analyst anaesthetist animator archaeologist architect
    archivist artist assistant astronomer athlete attorney auditor author baker banker barber barista bartender
    beautician beekeeper biologist blacksmith bookbinder bookkeeper bookseller botanist bricklayer broker builder
    butcher butler buyer cabinetmaker caretaker carpenter cartographer cashier chauffeur chef chemist chiropractor
    cleaner clerk coach cobbler composer concierge conductor confectioner consultant cook copywriter counsellor
    counselor courier curator dancer dentist designer detective developer dietician dietitian diplomat director
    diver doctor draughtsman dressmaker driver economist editor electrician engineer entrepreneur estate_agent
    executive farmer filmmaker firefighter fisherman florist forester gardener geologist glazier goldsmith
    graphic_designer groundskeeper guard guide hairdresser handyman historian housekeeper illustrator inspector
    instructor interpreter investigator janitor jeweller jeweler joiner journalist judge laboratory_technician
    labourer lawyer lecturer librarian lifeguard linguist locksmith logistician machinist maid manager manicurist
    mason masseur masseuse mathematician mechanic meteorologist midwife miner model musician nanny neurologist
    notary novelist nurse nutritionist obstetrician optician optometrist orthodontist osteopath painter paralegal
    paramedic pastor pathologist pediatrician pharmacist philosopher photographer physicist physician
    physiotherapist pianist pilot plasterer plumber podiatrist poet policeman policewoman politician porter postman
    potter principal producer professor programmer proofreader psychiatrist psychologist psychotherapist publicist
    publisher radiographer radiologist realtor receptionist recruiter referee reporter researcher roofer sailor
    salesman salesperson saleswoman scientist screenwriter sculptor seamstress secretary shepherd shoemaker singer
    sociologist soldier solicitor statistician steward stewardess stonemason surgeon surveyor tailor tattooist
    teacher technician therapist tiler toolmaker trainer translator truck_driver tutor upholsterer vet veterinarian
    videographer vintner violinist waiter waitress warden watchmaker weaver welder winemaker writer zoologist
    paediatrician sommelier postdoc
""")

ALLERGENS = _each("""
    almond amoxicillin animal ant antibiotic apple apricot aspirin avocado banana bean bee bee_sting beer bird birch
    cashew cat celery cheese cherry chicken chickpea chocolate cinnamon citrus cobalt cockroach coconut codeine cod
    coriander corn crab cream crustacean dairy dog down dust dust_mite egg eggplant feather fig fish flour
    formaldehyde fragrance fruit fungus fur garlic gluten goat grape grass guinea_pig hamster hay hazelnut honey
    hornet horse ibuprofen insect insulin iodine kiwi lactose lanolin latex lavender legume lemon lentil lily
    lobster lupin macadamia mango medication melon metal milk mint mite mold mosquito mould mouse mushroom mussel
    mustard nickel nut oat octopus olive onion orange oyster parsley pea peach peanut pear pecan penicillin pepper
    perfume pesticide pet pine pineapple pistachio plum plaster poison_ivy pollen pork potato prawn rabbit ragweed
    raspberry rat reptile rice rodent rye salmon sawdust scallop seafood seed semolina sesame sesame_seed shellfish
    shrimp soap soy soya spinach squid strawberry sulfa sulfite sulphite sun sunlight sunscreen tomato tree_nut tuna
    turkey walnut wasp wasp_sting wheat wine wool yeast antihistamine bee_venom codfish detergent tape adhesive
""")

KIN = {
    **{
        each: each
        for each in _each("""
    wife husband partner girlfriend boyfriend fiance spouse mother father sister brother son daughter child baby
    uncle aunt cousin nephew niece grandmother grandfather grandson granddaughter stepmother stepfather
    mother-in-law father-in-law sister-in-law brother-in-law boss manager friend colleague flatmate roommate
    landlord landlady doctor dentist therapist nanny neighbour teacher tutor dog cat puppy kitten rabbit parrot
    horse pony hamster turtle tortoise fish bird budgie goldfish lizard snake ferret goat cow hen
""")
    },
    **dict.fromkeys(("mum", "mom", "mama"), "mother"),
    **dict.fromkeys(("dad", "papa"), "father"),
    **dict.fromkeys(("grandma", "granny", "nana"), "grandmother"),
    **dict.fromkeys(("grandpa", "grandad", "granddad"), "grandfather"),
    "fiancé": "fiance",
    "fiancée": "fiance",
    "fiancee": "fiance",
    "neighbor": "neighbour",
    "kid": "child",
}
"""Relatives, people and animals of a person, each with the key of its slot."""

ALONE = frozenset({
    *("wife", "husband", "partner", "girlfriend", "boyfriend", "fiance", "spouse", "mother", "father", "boss"),
    *("manager", "landlord", "landlady", "mother-in-law", "father-in-law", "nanny", "doctor", "dentist", "therapist"),
})  # fmt: skip
"""Relations that one has one of at a time: another name replaces the first."""

NO_NAME = _each("""
    a able about abroad absolutely actually afraid after again ahead all allergic almost alone already alright also
    always am amazing american an and angry any anyone anything april are around as asian asking at august autistic
    awake aware back bad based basically because bed been before behind being best better between bisexual bored
    born both broke busy but buddhist by calling catholic certain christian cold coming confused crazy curious
    currently dead deaf december depressed diabetic disabled divorced done down drunk easter either else engaged
    english even ever every everyone exactly excited expecting february feeling female few fine finally finished
    first for free freezing french friday from fully german getting glad go going gone gonna good grateful great
    guess guilty had happy hard have having he healthy hello her here hey hi hindu his home honestly hoping hot how
    however hungry hurt i if ill important impressed in injured interested into introverted irish is it italian its
    january jewish july june just kind last late later leaving left lesbian like listening living local lol lonely
    looking lost love lucky mad male many march married may maybe me mean mine monday more most moved moving muslim
    my myself nearly nervous never new next nice nine no nobody none nope nor not nothing november now nowhere
    obviously october of off offline often ok okay old on once one online only open or originally orthodox other our
    out outside over overwhelmed please polish possible possibly pregnant pretty probably proud queer quite rather
    ready really relieved retired right sad same saturday scared scottish secret seeing self-employed september
    serious she shy sick since single sleepy so some someone something sometimes soon sorry spanish still stressed
    stuck studying such sunday sure surprised swedish talking team telling ten thank thanks that the their them then
    there these they thinking third thirsty this those thrilled thursday tired to today together tomorrow tonight
    too totally trans transgender tuesday turning two unemployed unfortunately unless until up upset us used usually
    vegan vegetarian very waiting was we wednesday well welsh were what whatever when where whether which while
    white who why will with without won wondering working worried wrong yeah yep yes yesterday yet you your hard
    difficult boring unusual common rare long short spelled pronounced taken unknown private nobody's taxi doctor
""")
"""Words that begin an answer or follow "I am", and are no names."""

NO_PLACE = _each("""
    linux windows macos mac android ios ubuntu debian fedora arch python rust golang java kotlin swift javascript
    typescript github gitlab jenkins kubernetes docker postgres mysql redis aws azure gcp spotify netflix whatsapp
    signal telegram discord slack teams gmail outlook notion obsidian firefox chrome safari vim emacs monday tuesday
    wednesday thursday friday saturday sunday january february march april may june july august september october
    november december narnia hogwarts gotham mordor discovery hell heaven paradise bed peace fear hope it that this
    there here home christmas easter sin poverty luxury harmony exile denial limbo constant always nowhere somewhere
    everywhere anywhere between with premium plan marketing sales engineering product hr finance support legal
    design operations team version amazon google microsoft apple meta facebook ibm oracle siemens bosch sap tesla
    nvidia intel
""")
"""Capitalised words behind "moved to" and "live in" that are no place."""
NO_ORG = _each("""
    christmas easter monday tuesday wednesday thursday friday saturday sunday january february march april june july
    august september october november december night home noon midnight
""")
"""Capitalised words behind "work at" and "started at" that are no employer."""

_SEVERAL = frozenset({"allergy", "speaks", "learns"})
"""Slots that hold several values at a time, beside most relatives."""
PRIVATE = frozenset({"allergy"})
"""Slots about health: they are private."""
TITLES = {
    "name": "name: {}",
    "nickname": "wants to be called {}",
    "phone": "phone: {}",
    "email": "e-mail: {}",
    "birthday": "birthday: {}",
    "home": "lives in {}",
    "job": "works as {}",
    "employer": "works at {}",
    "allergy": "allergic to {}",
    "speaks": "speaks {}",
    "learns": "is learning {}",
}
"""Sentence for a value, by slot; a relative's name is told as "dog: Biscuit"."""
SLOTS = (*TITLES, *dict.fromkeys(KIN.values()))
"""All slots that rules fill."""


def holds_several(slot: str) -> bool:
    """Return whether the slot may have several values at a time."""
    return slot in _SEVERAL or (slot in KIN.values() and slot not in ALONE)


def title_of(slot: str, value: str, *, ended: bool = False) -> str:
    """The line that tells a value."""
    line = TITLES.get(slot, slot + ": {}").format(value)
    return f"no longer: {line}" if ended else line
