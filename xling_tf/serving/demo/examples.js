// What the two lists and the query hold at first: `sentences` to compare, or questions and `answers`.
export const EXAMPLES = {
  sentences: {
    rows: [
      "The neighbours are painting their house yellow.",
      "I missed the last bus home.",
      "She speaks three languages at work.",
      "The bakery opens before sunrise.",
      "We went swimming in the lake.",
      "The price of bread has gone up again.",
      "My brother repairs old bicycles.",
      "There is a spider in the bathroom.",
    ],
    columns: [
      "Los vecinos están pintando su casa de amarillo.",
      "Perdí el último autobús a casa.",
      "En el trabajo ella habla tres idiomas.",
      "La panadería abre antes del amanecer.",
      "Fuimos a nadar al lago.",
      "El precio del pan ha vuelto a subir.",
      "Mi hermano arregla bicicletas viejas.",
      "Hay una araña en el cuarto de baño.",
    ],
    query: "At nine there is a train to the seaside.",
  },
  answers: {
    rows: [
      "When does the swimming pool open?",
      "How much is a ticket for children?",
      "Who painted the picture in the hall?",
      "Why is the road to the village closed?",
      "Where can we leave our bicycles?",
    ],
    columns: [
      "La piscina abre a las siete de la mañana.",
      "Los niños pagan cuatro euros por la entrada.",
      "El cuadro de la sala lo pintó una artista del pueblo.",
      "La carretera está cortada porque cayó un árbol.",
      "Las bicicletas se pueden dejar detrás de la estación.",
    ],
    query: "What time does the library close?",
  },
};
